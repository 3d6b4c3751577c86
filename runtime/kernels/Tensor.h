//===- Tensor.h - Dense tensors in one of four arithmetics -----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_TENSOR_H
#define TBC_RUNTIME_KERNELS_TENSOR_H

#include "runtime/kernels/DType.h"
#include "runtime/kernels/KernelError.h"
#include "runtime/kernels/Residue.h"
#include "runtime/kernels/Residue251.h"

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace tbc::kernels {

using Shape = std::vector<int64_t>;

/// The representation and computation of float values. Integers and booleans are int64_t in all
/// four.
enum class Arith {
  /// The precision of the dtype: f64 as double; f32, bf16 and f16 as float. bf16 and f16 are
  /// rounded after each op.
  Native,
  /// Every float as double, unrounded.
  F64,
  /// Every float as an element of Z/(2^61 - 1).
  Residue61,
  /// Every float as an element of Z/251. In memory and messages it takes the bytes of the dtype.
  Residue251
};
inline constexpr int numAriths = 4;

/// Whether floats are residues: exact, and without magnitude.
inline bool isModular(Arith arith) {
  return arith == Arith::Residue61 || arith == Arith::Residue251;
}

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
};
inline bool operator==(const TensorType &a, const TensorType &b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}
inline bool operator!=(const TensorType &a, const TensorType &b) { return !(a == b); }

/// The product of the sizes: 1 for a scalar, 0 if a size is 0. Example: {2, 3} has 6.
int64_t numElements(const Shape &shape);

/// "2x3xf32"; "f32" for a scalar.
std::string toString(const TensorType &type);

using Storage = std::variant<std::vector<float>, std::vector<double>, std::vector<Residue>,
                             std::vector<int64_t>, std::vector<Residue251>>;

/// A dense row-major tensor. Copies are cheap: they share their elements until one is written
/// (`mutableData`). A default-constructed tensor has no value and converts to false.
class Tensor {
public:
  Tensor() = default;

  /// Takes over `elements`, one per element of `type`; KernelError for another count. Floats of
  /// bf16 or f16 are rounded; integers wrap to their width.
  template <typename T> Tensor(TensorType type, std::vector<T> elements);

  static Tensor zeros(const TensorType &type, Arith arith);

  /// Rounds `values` to the dtype in Native; takes them exactly in the others. In residues they
  /// must be finite. An integer dtype truncates towards zero. One value fills the tensor.
  static Tensor fromDoubles(const TensorType &type, Arith arith, const std::vector<double> &values);

  /// For an integer or Bool `type` (KernelError otherwise). One value fills the tensor.
  static Tensor fromInts(const TensorType &type, const std::vector<int64_t> &values);

  /// Reads numElements * byteWidth bytes in the little-endian encoding of files and messages.
  static Tensor fromBytes(const TensorType &type, Arith arith, const void *bytes);

  explicit operator bool() const { return storage != nullptr; }
  const TensorType &type() const { return tensorType; }
  DType dtype() const { return tensorType.dtype; }
  const Shape &shape() const { return tensorType.shape; }
  int64_t numElements() const { return kernels::numElements(tensorType.shape); }

  /// The inverse of `toBytes` in Residue251: floats are read as residues. KernelError for bytes
  /// that are not a residue.
  static Tensor residuesFromBytes(const TensorType &type, const void *bytes);

  /// Whether the elements are held as T (float, double, Residue, Residue251 or int64_t).
  template <typename T> bool holds() const {
    return storage && std::holds_alternative<std::vector<T>>(*storage);
  }

  /// The elements in row-major order; KernelError unless held as T.
  template <typename T> const std::vector<T> &data() const {
    require(holds<T>(), "tensor is not held in the arithmetic asked for");
    return std::get<std::vector<T>>(*storage);
  }

  /// The same for writing; copies the elements first if another tensor shares them. The caller does
  /// the rounding.
  template <typename T> std::vector<T> &mutableData() {
    require(holds<T>(), "tensor is not held in the arithmetic asked for");
    if (storage.use_count() > 1)
      storage = std::make_shared<Storage>(*storage);
    return std::get<std::vector<T>>(*storage);
  }

  /// Whether the elements are residues of either kind.
  bool holdsResidues() const { return holds<Residue>() || holds<Residue251>(); }

  /// The numbers v of residues; KernelError for other elements.
  std::vector<uint64_t> toResidues() const;

  /// The elements as doubles. Floats are exact. Residues give v, rounded, for display only.
  std::vector<double> toDoubles() const;

  /// The elements in the encoding of `fromBytes`. Residue251 gives the numbers v as floats of the
  /// dtype. KernelError for Residue61, which has no encoding.
  std::vector<unsigned char> toBytes() const;

  /// The same elements in row-major order, in another shape of equal size; shares them.
  Tensor reshaped(Shape shape) const;

private:
  friend bool bitwiseEqual(const Tensor &a, const Tensor &b);

  TensorType tensorType;
  std::shared_ptr<Storage> storage;
};

/// Whether type, arithmetic and every bit of every element are equal. Example: NaN equals itself,
/// and -0 differs from 0.
bool bitwiseEqual(const Tensor &a, const Tensor &b);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_TENSOR_H

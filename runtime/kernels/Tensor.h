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

/// How float values are held and computed; integers and booleans are int64_t in all of them.
enum class Arith {
  /// The precision of the dtype: f64 as double; f32, bf16 and f16 as float, the latter two rounded
  /// after
  /// each op.
  Native,
  /// Every float as double, unrounded.
  F64,
  /// Every float as an element of Z/(2^61 - 1).
  Residue61,
  /// Every float as an element of Z/251, which takes the dtype's bytes in memory and messages.
  Residue251
};
inline constexpr int numAriths = 4;

/// Whether floats are residues in it: exact, and without a size.
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

/// The product of the sizes: 1 for a scalar, 0 when a size is 0.
int64_t numElements(const Shape &shape);

/// "2x3xf32"; "f32" for a scalar.
std::string toString(const TensorType &type);

using Storage = std::variant<std::vector<float>, std::vector<double>, std::vector<Residue>,
                             std::vector<int64_t>, std::vector<Residue251>>;

/// A dense row-major tensor, cheap to copy: copies share their elements until one is written
/// (mutableData). A default-constructed tensor holds no value and converts to false.
class Tensor {
public:
  Tensor() = default;

  /// Takes over `elements`, one per element of `type` or KernelError. Floats destined for bf16 or
  /// f16 are rounded, integers wrapped to their width.
  template <typename T> Tensor(TensorType type, std::vector<T> elements);

  static Tensor zeros(const TensorType &type, Arith arith);

  /// Rounds `values` to the dtype in Native; takes them exactly in the others (of residues they
  /// must be finite). An integer dtype truncates towards zero. One value = splat.
  static Tensor fromDoubles(const TensorType &type, Arith arith, const std::vector<double> &values);

  /// For an integer or Bool `type` (KernelError otherwise). One value = splat.
  static Tensor fromInts(const TensorType &type, const std::vector<int64_t> &values);

  /// Reads numElements * byteWidth bytes in the little-endian encoding of files and wires.
  static Tensor fromBytes(const TensorType &type, Arith arith, const void *bytes);

  explicit operator bool() const { return storage != nullptr; }
  const TensorType &type() const { return tensorType; }
  DType dtype() const { return tensorType.dtype; }
  const Shape &shape() const { return tensorType.shape; }
  int64_t numElements() const { return kernels::numElements(tensorType.shape); }

  /// The tensor of which `bytes` are what toBytes gave, held in Residue251 where `type` is a float;
  /// KernelError for bytes that are no residue.
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

  /// The same for writing; copies the elements first if another tensor shares them. The writer
  /// rounds.
  template <typename T> std::vector<T> &mutableData() {
    require(holds<T>(), "tensor is not held in the arithmetic asked for");
    if (storage.use_count() > 1)
      storage = std::make_shared<Storage>(*storage);
    return std::get<std::vector<T>>(*storage);
  }

  /// Whether the elements are residues of either kind.
  bool holdsResidues() const { return holds<Residue>() || holds<Residue251>(); }

  /// The numbers v of residues; KernelError for others.
  std::vector<uint64_t> toResidues() const;

  /// The elements as doubles: exact for floats; for residues v itself, rounded, good for display
  /// only.
  std::vector<double> toDoubles() const;

  /// The elements in the encoding of `fromBytes`; of Residue251 the numbers v, as floats of the
  /// dtype. KernelError for Residue61, which has none.
  std::vector<unsigned char> toBytes() const;

  /// The same elements in row-major order under another shape with as many elements; shares them.
  Tensor reshaped(Shape shape) const;

private:
  friend bool bitwiseEqual(const Tensor &a, const Tensor &b);

  TensorType tensorType;
  std::shared_ptr<Storage> storage;
};

/// Whether type, arithmetic and every bit of every element agree (so NaN equals itself, and -0 is
/// not 0).
bool bitwiseEqual(const Tensor &a, const Tensor &b);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_TENSOR_H

//===- Known.h - Tensors whose elements are known at import ----------------===//

#ifndef TBC_FRONTEND_ONNX_KNOWN_H
#define TBC_FRONTEND_ONNX_KNOWN_H

#include "runtime/kernels/DType.h"
#include "runtime/kernels/Tensor.h"

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tbc::frontend {

using kernels::DType;
using kernels::Shape;

/// Thrown by the importer of a node; the caller adds the node's name.
struct ImportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The same for an option that the model does not fit: exit code 2.
struct UsageError : ImportError {
  using ImportError::ImportError;
};

/// Bounds the elements computed at import during its lifetime, in this thread, and the bytes of
/// constants held at once: a small file can ask for any amount of both. The bounds count elements
/// and bytes, not seconds, so they are reproducible.
class WorkBudget {
public:
  WorkBudget(int64_t elements, int64_t heldBytes);
  ~WorkBudget();
  /// ImportError if more than `heldBytes` would be held.
  static void hold(int64_t bytes);
  static void release(int64_t bytes);
  /// ImportError once the budget is spent.
  static void spend(int64_t elements);
};

/// Sums and products of elements; ImportError where integers overflow.
int64_t sumOf(int64_t a, int64_t b);
int64_t productOf(int64_t a, int64_t b);
inline double sumOf(double a, double b) { return a + b; }
inline double productOf(double a, double b) { return a * b; }

/// The product of the sizes, or the largest int64_t.
int64_t saturatedElements(const Shape &shape);

/// Calls `visit` with every index of a tensor of `shape`, in row-major order. Counts as work.
void forEachIndex(const Shape &shape, const std::function<void(const Shape &index)> &visit);

/// The elements of a tensor: listed, or an affine function of the index. Affine ones (ranges,
/// positions, sums and comparisons of these) are free at any size, and are emitted as `iota`, never
/// as tables. Example: [5, 7, 9] is offset 5 with coefficient 2.
class Known {
public:
  static Known ofInts(Shape shape, std::vector<int64_t> elements);
  static Known ofReals(Shape shape, std::vector<double> elements);
  static Known ofInt(int64_t value) { return ofInts({}, {value}); }
  static Known ofReal(double value) { return ofReals({}, {value}); }
  /// offset + sum of coefficients[i] * index[i]; a float tensor holds the same numbers. ImportError
  /// if an element is beyond 64 bits.
  static Known affine(Shape shape, int64_t offset, std::vector<int64_t> coefficients, bool isFloat);

  const Shape &shape() const { return sizes; }
  bool isFloat() const { return floating; }
  bool isAffine() const { return isAffineForm; }
  int64_t offset() const { return affineOffset; }
  const std::vector<int64_t> &coefficients() const { return affineCoefficients; }
  int64_t numElements() const { return saturatedElements(sizes); }
  /// The memory of the listed elements.
  int64_t heldBytes() const { return 8 * int64_t(intElements.size() + realElements.size()); }

  int64_t intAt(const Shape &index) const;
  double realAt(const Shape &index) const;
  /// All elements in row-major order.
  std::vector<int64_t> ints() const;
  std::vector<double> reals() const;

  /// Returns the same tensor without the dims along which it is constant; `kept` lists the other
  /// dims. A listed integer tensor with affine elements becomes affine.
  Known compacted(std::vector<unsigned> &kept) const;

private:
  int64_t linear(const Shape &index) const;
  bool isConstantAlong(unsigned dim) const;
  void findAffineForm();

  Shape sizes;
  bool floating = false, isAffineForm = false;
  int64_t affineOffset = 0;
  std::vector<int64_t> affineCoefficients;
  std::vector<int64_t> intElements;
  std::vector<double> realElements;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_KNOWN_H

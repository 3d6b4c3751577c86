//===- Support.h - Dispatch, operand access, index arithmetic --------------===//
//
// Part of tbc. Internal to the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_SUPPORT_H
#define TBC_RUNTIME_KERNELS_SUPPORT_H

#include "runtime/kernels/Kernel.h"
#include "runtime/kernels/Scalar.h"

#include <string_view>

namespace tbc::kernels {

/// One row of a family's table.
struct KernelEntry {
  std::string_view mnemonic;
  KernelFn kernel;
  bool isElementwise = false; // see isElementwiseKernel
};
using KernelTable = std::vector<KernelEntry>;

/// Calls fn(T()) for the T that represents a tensor of `dtype` in `arith`.
template <typename Fn> auto dispatch(Arith arith, DType dtype, Fn &&fn) {
  if (!isFloat(dtype))
    return fn(int64_t());
  if (arith == Arith::Residue61)
    return fn(Residue());
  if (arith == Arith::Residue251)
    return fn(Residue251());
  if (arith == Arith::F64 || dtype == DType::F64)
    return fn(double());
  return fn(float());
}

/// Calls fn(T()) for the T that represents the elements of `tensor`.
template <typename Fn> auto dispatch(const Tensor &tensor, Fn &&fn) {
  if (tensor.holds<float>())
    return fn(float());
  if (tensor.holds<double>())
    return fn(double());
  if (tensor.holds<Residue>())
    return fn(Residue());
  if (tensor.holds<Residue251>())
    return fn(Residue251());
  require(tensor.holds<int64_t>(), "an operand holds no value");
  return fn(int64_t());
}

/// The same for a float tensor; KernelError for integers.
template <typename Fn> auto dispatchFloat(const Tensor &tensor, Fn &&fn) {
  if (tensor.holds<float>())
    return fn(float());
  if (tensor.holds<double>())
    return fn(double());
  if (tensor.holds<Residue>())
    return fn(Residue());
  require(tensor.holds<Residue251>(),
          [&] { return "expected a float operand, got " + toString(tensor.type()); });
  return fn(Residue251());
}

/// Reads a float operand as T. Floats of another width are converted, for example an f32 statistic
/// beside f64 data. Residues and floats do not mix.
template <typename T> class Operand {
public:
  explicit Operand(const Tensor &tensor) : tensor(tensor) {
    elements = convert() ? converted.data() : tensor.data<T>().data();
  }
  Operand(const Operand &) = delete;

  T operator[](int64_t i) const { return elements[i]; }
  const T *begin() const { return elements; }
  const Shape &shape() const { return tensor.shape(); }
  int64_t size() const { return tensor.numElements(); }

private:
  bool convert() {
    if constexpr (std::is_floating_point_v<T>) {
      using Other = std::conditional_t<std::is_same_v<T, float>, double, float>;
      if (tensor.holds<Other>()) {
        converted.assign(tensor.data<Other>().begin(), tensor.data<Other>().end());
        return true;
      }
    }
    return false;
  }

  Tensor tensor; // a copy keeps shared elements alive
  std::vector<T> converted;
  const T *elements;
};

/// Returns the tensor of `type` with these elements, converted if `type` is held in another float
/// width.
template <typename T>
Tensor makeResult(const KernelContext &context, const TensorType &type, std::vector<T> elements) {
  if constexpr (std::is_floating_point_v<T>) {
    bool asDouble = context.arith == Arith::F64 || type.dtype == DType::F64;
    if (asDouble && std::is_same_v<T, float>)
      return Tensor(type, std::vector<double>(elements.begin(), elements.end()));
    if (!asDouble && std::is_same_v<T, double>)
      return Tensor(type, std::vector<float>(elements.begin(), elements.end()));
  }
  return Tensor(type, std::move(elements));
}

/// Throws KernelError unless the counts of operands and results are equal to these.
void requireCounts(const std::vector<Tensor> &inputs, size_t numInputs,
                   const std::vector<TensorType> &resultTypes, size_t numResults);

/// Throws KernelError unless `shape` is `expected`; `what` names the offender.
void requireShape(const char *what, const Shape &shape, const Shape &expected);

/// Returns `dim` if it is one of a tensor with `numDims` dims; throws KernelError otherwise.
int64_t requireDim(int64_t dim, size_t numDims);

/// Returns `index` in floats. In residues an integer made from floats is a hash, so there an index
/// counts modulo `size`, the number of rows or classes. Example: -1 of 8 rows is 7 in residues.
int64_t indexIn(const KernelContext &context, int64_t index, int64_t size);

/// Strides in elements along each dim of a row-major tensor. Example: {2, 3, 4} has {12, 4, 1}.
Shape rowMajorStrides(const Shape &shape);

/// The offsets sum(index[d] * strides[d]) for every index of `shape`, in row-major order.
std::vector<int64_t> listOffsets(const Shape &shape, const Shape &strides);

/// `shape` without (or only with) the dims in `dims`, in order.
Shape without(const Shape &shape, const std::vector<int64_t> &dims);
Shape only(const Shape &shape, const std::vector<int64_t> &dims);

/// A tensor seen as outer x size x inner around one dim. Element (o, i, n) has the index (o * size
/// + i) * inner + n. Example: {2, 3, 4} at dim 1 is 2 x 3 x 4, at dim 2 it is 6 x 4 x 1.
struct DimSplit {
  int64_t outer, size, inner;
};
DimSplit splitAt(const Shape &shape, int64_t dim);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_SUPPORT_H

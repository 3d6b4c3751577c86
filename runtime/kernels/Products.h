//===- Products.h - An einsum as matrix products ---------------------------===//
//
// Part of tbc. Plain C++. For matmul libraries: divides an einsum into one matmul and loops around
// it.
//
// Labels are batch (in both operands and the result), contracted, or of one operand. Labels of a
// role that are contiguous in all their tensors are merged. Then one label of each operand and one
// contracted label make a matmul in place; the other labels are loops around it, which add up for
// contracted labels. Example: bik,kj->bij is one matmul of (b i) x k x j.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_PRODUCTS_H
#define TBC_RUNTIME_KERNELS_PRODUCTS_H

#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

#include <vector>

namespace tbc::kernels {

/// Some labels that are one loop. Strides count elements; 0 where a tensor does not have it.
struct ProductLoop {
  int64_t size, lhs, rhs, out;
};
using ProductLoops = std::vector<ProductLoop>;

struct ProductRoles {
  ProductLoops batch, contracted, lhsFree, rhsFree;
  /// A label of one operand alone is summed: no matmul.
  bool sumsOneOperand = false;
};

/// The roles of an einsum of dense row-major tensors (runtime/kernels/Einsum.h).
ProductRoles productRoles(const Attrs &attrs, const TensorType &lhs, const TensorType &rhs,
                          const TensorType &result);

/// With the operands in the other order.
ProductRoles swapped(ProductRoles roles);

/// A product c[m x n] (+)= a[m x k] * b[k x n] inside loops, c with unit stride along n, a and b
/// along one of their dims.
struct ProductPlan {
  ProductLoop m{1, 0, 0, 0}, n{1, 0, 0, 0}, k{1, 0, 0, 0};
  /// Loops over batch and free labels: independent of each other.
  ProductLoops around;
  /// Contracted labels but k.
  ProductLoops summed;
};

/// Sets `best` to the plan with the largest matmuls; false without a plan. Sums over loops around a
/// matmul are rounded to the result's type in between: only with `maySum`.
bool choose(const ProductRoles &roles, bool maySum, ProductPlan &best);

/// Whether a matrix of this many rows and columns at these strides has dense rows (or columns).
bool isDense(int64_t rows, int64_t rowStride, int64_t columns, int64_t columnStride);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_PRODUCTS_H

//===- Matmuls.h - An einsum as matmuls -----------------------------------===//
//
// Part of tbc. Plain C++. For matmul libraries: divides an einsum into one matmul and loops around
// it.
//
// Roles of labels: batch (in both operands and the result), contracted, or free (in one operand and
// the result). Labels of a role that are contiguous in all their tensors are merged. One label of
// each operand and one contracted label then make a matmul in place. The other labels are loops
// around it; loops over contracted labels add up. Example: bik,kj->bij is one matmul of (b i) x k x
// j.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_MATMULS_H
#define TBC_RUNTIME_KERNELS_MATMULS_H

#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

#include <vector>

namespace tbc::kernels {

/// One or several labels as a single loop. Strides count elements; 0 if the tensor lacks the
/// labels.
struct MatmulLoop {
  int64_t size, lhs, rhs, out;
};
using MatmulLoops = std::vector<MatmulLoop>;

struct MatmulRoles {
  MatmulLoops batch, contracted, lhsFree, rhsFree;
  /// Whether a label of a single operand is summed; then there is no matmul.
  bool sumsOneOperand = false;
};

/// Returns the roles of an einsum of dense row-major tensors (runtime/kernels/Einsum.h).
MatmulRoles matmulRoles(const Attrs &attrs, const TensorType &lhs, const TensorType &rhs,
                        const TensorType &result);

/// Returns the roles with the operands exchanged.
MatmulRoles swapped(MatmulRoles roles);

/// A matmul c[m x n] (+)= a[m x k] * b[k x n] inside loops. c has unit stride along n; a and b have
/// it along one of their dims.
struct MatmulPlan {
  MatmulLoop m{1, 0, 0, 0}, n{1, 0, 0, 0}, k{1, 0, 0, 0};
  /// Loops over batch and free labels: independent of each other.
  MatmulLoops around;
  /// Contracted labels except k.
  MatmulLoops summed;
};

/// Sets `best` to the plan with the largest matmuls; returns false if there is no plan. Sums over
/// loops around a matmul round to the result's type in between, so they are used only with
/// `maySum`.
bool choose(const MatmulRoles &roles, bool maySum, MatmulPlan &best);

/// Whether a matrix of this size has dense rows: unit stride along columns.
bool isDense(int64_t rows, int64_t rowStride, int64_t columns, int64_t columnStride);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_MATMULS_H

//===- GroupedRows.h - Matmuls of sorted rows by their groups --------------===//
//
// torch's grouped_mm multiplies each row with the matrix of its group. The rows are sorted by
// group, and a group ends where the sum of the counts says, which depends on data. Mixtures of
// experts compute so: a row is a choice of a token, and its group is the expert.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_GROUPEDROWS_H
#define TBC_FRONTEND_ONNX_GROUPEDROWS_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Replaces the nodes of each grouped matmul by a Gather of the matrices, one for each row, and a
/// MatMul. Nodes that no other node reads any longer go. The rows keep their order, and raising
/// finds experts in gathered matrices (RaiseExpertGathers.cpp).
///
/// Example of 2 groups: Concat(MatMul(Gather(x, Range(0, e0)), w[0]), MatMul(Gather(x, Range(e0,
/// e1)), w[1])), where e0 and e1 are CumSum(ScatterElements(zeros, g, ones, reduction add)),
/// becomes y[row] = x[row] w[g[row]]. g must be sorted: a function without descents of the first
/// result of a TopK in ascending order.
void joinGroupedRows(Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_GROUPEDROWS_H

//===- MatmulEpilogue.h - Kernels in the call of a matmul -----------------===//

#ifndef TBC_PLANNER_COST_MATMULEPILOGUE_H
#define TBC_PLANNER_COST_MATMULEPILOGUE_H

#include "planner/reshard/Graph.h"

#include <functional>
#include <vector>

namespace tbc::planner {

/// Whether a library executes the kernel of `ops` in the call of the matmul `product`, of which it
/// is the only reader. `isWritten`: whether the kernel writes a value that it makes. The kernel
/// does one of these, with y the product [m, n]:
/// - y + bias, y + matrix, or both in any order; the bias has n elements, along the rows of y. Then
///   perhaps gelu(..), which may also write its input if 8 divides n;
/// - gelu'(x) y, if 8 divides n;
/// - a cast of y from 16 bits to f32.
///
/// All terms have y's type, and gelu is the tanh form. y is one dense matrix, except for a cast.
/// runtime/cuda/Epilogues.cpp has the same rule for Programs, on instructions; a test compares both
/// (tests/tools/epilogues_agree_test.cpp).
bool isMatmulEpilogue(const reshard::Graph &graph, const reshard::GraphOp &product,
                      const std::vector<int> &ops, const std::function<bool(int value)> &isWritten);

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_MATMULEPILOGUE_H

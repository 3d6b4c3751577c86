//===- Fp8.h - Matmuls whose operands are rounded to 8 bits ---------------===//
//
// Plain C++. A run decides the same by the shapes of a Program (runtime/cuda/Fp8Matmuls.h); a test
// compares both (tests/tools/cuda_fp8_test.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_FP8_H
#define TBC_PLANNER_RESHARD_FP8_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// Whether op `op` reads operands in 8 bits on a rank under `strategy`. All three dims of a matmul
/// must be multiples of 16, and both operands together have at most Fp8Use::mostBytes. Example: a
/// head of 50304 classes is in fp8 whole and on 8 ranks, which have 6288 each; on 32 ranks, which
/// have 1572, it keeps its own types.
bool isInFp8(const Graph &graph, int op, const OpStrategy &strategy);

/// Returns a number of ranks for which, and for each of its divisors, op `op` isInFp8() under every
/// strategy; 0 if it is not whole. Example: rows and columns of 4096, depth of 768: 48, as no split
/// over 48 ranks leaves a dim that is no multiple of 16.
int64_t ranksInFp8(const Graph &graph, int op);

/// Returns the bytes that the two operands of op `op`, which isInFp8(), take on a rank in 8 bits,
/// with the scales beside them (runtime/memory/Fp8Workspace.h).
int64_t fp8OperandBytes(const Graph &graph, int op, const OpStrategy &strategy);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_FP8_H

//===- Fp8Matmuls.h - Matmuls in 8 bits ------------------------------------===//

#ifndef TBC_PLANNER_GRAPH_FP8MATMULS_H
#define TBC_PLANNER_GRAPH_FP8MATMULS_H

#include "planner/devices/Executor.h"
#include "planner/reshard/Graph.h"

namespace tbc::planner {

/// Returns `graph` with the matmuls that `executor` may multiply in 8 bits (GraphOp::fp8). Example:
/// megatron has the linear layers of a GPT-2 and their gradients, tbc also the head.
reshard::Graph withFp8Matmuls(reshard::Graph graph, const Executor &executor);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_FP8MATMULS_H

//===- DividedWork.h - Work of a micro-batch, divided evenly --------------===//

#ifndef TBC_PLANNER_BOUND_DIVIDEDWORK_H
#define TBC_PLANNER_BOUND_DIVIDEDWORK_H

#include "planner/bound/CutBound.h"
#include "planner/bound/PipelineBound.h"
#include "planner/bound/WholeWork.h"

#include <optional>
#include <vector>

namespace tbc::planner {

/// Kernel seconds of a micro-batch by forward op, each with its backward, divided evenly over the
/// devices of a model replica.
struct DividedWork {
  std::vector<WorkShare> byOp;
  std::vector<WorkShare> leastByOp; // as WorkShare::least
  WorkInOrder inOrder;              // of byOp
  std::optional<CutBound> cuts;     // of leastByOp
  WorkShare total, least;           // sums of byOp and of leastByOp
  double largest = 0;               // of leastByOp: seconds of the longest op with its backward
};

/// Divides the work of `graph`, whose unsplit kernels are `whole` with the given shares of its ops,
/// over `devices` devices.
///
/// Theorem: in every plan without recomputation, op i takes at least byOp[i] seconds on some device
/// of its stage; with any recomputation, at least leastByOp[i].
///
/// Proof sketch: a kernel takes max(FLOPs / peak, bytes / bandwidth) plus its launch. A strategy on
/// n devices leaves at least 1/n of FLOPs and bytes on some device. Recomputation changes only the
/// kernels named in AgainSeconds (KeepBound.h), each by at most the saving counted there.
///
/// Example: a matmul of 8 ms forward and 16 ms backward on 4 devices counts 2 ms forward, 2 ms
/// dgrad and 2 ms wgrad, if its backward has two equal matmuls.
DividedWork divideWork(const reshard::Graph &graph, const WholeWork &whole,
                       const std::vector<KernelShare> &shares, const Cluster &cluster,
                       int64_t devices);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_DIVIDEDWORK_H

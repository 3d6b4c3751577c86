//===- JobGraph.cpp - The graph of a model as a job runs it ---------------===//

#include "planner/plan/JobGraph.h"
#include "planner/graph/Fp8Matmuls.h"

#include <algorithm>

namespace tbc::planner {

reshard::Graph graphOfJob(reshard::Graph graph, const Job &job, const Cluster &cluster) {
  graph = withExpertImbalance(std::move(graph), job.expertImbalance);
  return job.matmulPrecision == MatmulPrecision::Fp8
             ? withFp8Matmuls(std::move(graph), executorOf(cluster))
             : graph;
}

Status checkMatmulPrecision(const reshard::Graph &graph, const Job &job, const Cluster &cluster) {
  if (job.matmulPrecision == MatmulPrecision::Own ||
      std::any_of(graph.ops.begin(), graph.ops.end(),
                  [](const reshard::GraphOp &op) { return op.fp8.isRounded; }))
    return Status::ok();
  const Executor &executor = executorOf(cluster);
  return Error{ErrorCode::Usage,
               "--matmul-precision fp8: " +
                   (executor.fp8.exists
                        ? "the model has no matmul that " + executor.name + " has in fp8"
                        : "executor " + executor.name + " has no matmuls in fp8") +
                   "; leave the flag out"};
}

} // namespace tbc::planner

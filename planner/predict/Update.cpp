//===- Update.cpp - The update of parameters -------------------------------===//

#include "planner/predict/Update.h"
#include "planner/cost/Cost.h"
#include "planner/memory/Memory.h"
#include "planner/reshard/Launches.h"

#include <cmath>

using namespace tbc::reshard;

namespace tbc::planner {

double updateBytes(double owned, int64_t stateBytes, int64_t parameterBytes,
                   int64_t gradientBytes) {
  double master = double(masterBytes(parameterBytes)), state = double(stateBytes);
  // Without a master copy the parameter itself is read and written; with one it is written only.
  double parameter = double(parameterBytes) * (master > 0 ? 1 : 2);
  return owned * (parameter + 2 * master + 2 * state + double(gradientBytes));
}

double totalsBytes(const GraphParameter &parameter, double owned) {
  constexpr double wideBytes = 4;
  return parameter.matrices ? owned * wideBytes * parameter.matrices->totals : 0;
}

int64_t updateTensors(const GraphParameter &parameter, const Job &job, int64_t parameterBytes) {
  constexpr int64_t momentBytes = 4;
  if (parameter.matrices)
    return maxLaunchTensors;
  return 3 + 2 * (job.stateBytesPerElement(parameter) / momentBytes) +
         int64_t(masterBytes(parameterBytes) > 0);
}

double updateLaunches(const Cluster &cluster, double kernels, double tensors) {
  constexpr int64_t scalars = 4; // learning rate, step number, factor of gradients, condition
  return cluster.joinsLaunches() ? std::ceil(tensors / double(maxLaunchTensors - scalars))
                                 : kernels;
}

double leastUpdateLaunches(const Cluster &cluster, double kernels, double tensors) {
  return cluster.joinsLaunches() ? tensors / double(maxLaunchTensors) : kernels;
}

double matrixSeconds(const Cluster &cluster, const GraphParameter &parameter,
                     const Sharding &matrices) {
  if (!parameter.matrices)
    return 0;
  const Graph &graph = parameter.matrices->graph;
  double seconds = 0;
  for (int op = 0; op < int(graph.ops.size()); ++op)
    seconds +=
        opKernelSeconds(cluster, graph, op, matrixStrategy(*parameter.matrices, op, matrices),
                        frameworkShare(graph, graph.ops[op]));
  return seconds;
}

} // namespace tbc::planner

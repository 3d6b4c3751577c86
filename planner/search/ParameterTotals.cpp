//===- ParameterTotals.cpp - Sums over the parameters of a model ----------===//

#include "planner/search/ParameterTotals.h"
#include "planner/predict/Update.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

bool isOfExperts(const Graph &graph, const GraphParameter &parameter) {
  const std::vector<int> &users = graph.values[size_t(parameter.value)].users;
  return std::any_of(users.begin(), users.end(),
                     [&](int user) { return graph.ops[size_t(user)].expertLoop >= 0; });
}

TotalsByKind parameterTotals(const Graph &graph, const Job &job,
                             const std::function<bool(const GraphParameter &)> &isCounted) {
  TotalsByKind totals;
  for (const GraphParameter &parameter : graph.parameters) {
    if (!isCounted(parameter))
      continue;
    const GraphValue &value = graph.values[parameter.value];
    double bytes = double(value.layout.numElements() * value.layout.elementBytes);
    bool inForward = false, inBackward = false;
    for (int user : value.users) {
      inForward |= graph.ops[user].phase == Phase::Forward;
      inBackward |= graph.ops[user].phase != Phase::Forward;
    }
    if (value.users.empty())
      continue;
    ParameterTotals &of = totals[isOfExperts(graph, parameter)];
    of.bytes += bytes;
    of.inForward += inForward;
    of.forwardBytes += inForward ? bytes : 0;
    of.inBackward += inBackward;
    of.backwardBytes += inBackward ? bytes : 0;
    if (inForward)
      of.forwardSizes[bytes] += 1;
    if (inBackward)
      of.backwardSizes[bytes] += 1;
    if (parameter.gradient < 0)
      continue;
    double elements = double(value.layout.numElements());
    int64_t gradientBytes = graph.values[parameter.gradient].layout.elementBytes;
    of.trained += 1;
    of.trainedBytes += bytes;
    of.trainedSizes[bytes] += 1;
    of.castBytes += masterBytes(value.layout.elementBytes) > 0 ? bytes : 0;
    of.gradientBytes += elements * double(gradientBytes);
    of.gradientSizes[elements * double(gradientBytes)] += 1;
    of.stateBytes += elements * double(job.stateBytesPerElement(parameter) +
                                       masterBytes(value.layout.elementBytes));
    of.updateTensors += double(updateTensors(parameter, job, value.layout.elementBytes));
    of.updateBytes += updateBytes(elements, job.stateBytesPerElement(parameter),
                                  value.layout.elementBytes, gradientBytes) +
                      totalsBytes(parameter, elements);
    of.matrices += double(bool(parameter.matrices));
    if (parameter.matrices && !isStack(parameter.matrices.get(), int(value.layout.dims.size())))
      of.matrixSizes[bytes] += 1;
  }
  return totals;
}

/// Returns the bytes of `value`, and whether `parameter` is of experts.
static EndTensor endTensor(const Graph &graph, int value, const GraphParameter &parameter) {
  const TensorLayout &layout = graph.values[size_t(value)].layout;
  return {double(layout.numElements() * layout.elementBytes), isOfExperts(graph, parameter)};
}

EndTensors endTensors(const Graph &graph) {
  EndTensors ends;
  int first = int(graph.ops.size()), last = -1;
  for (const GraphParameter &parameter : graph.parameters) {
    for (int user : graph.values[parameter.value].users) {
      const GraphOp &op = graph.ops[user];
      if (op.phase != Phase::Forward || op.generator || user > first)
        continue;
      const EndTensor tensor = endTensor(graph, parameter.value, parameter);
      if (user < first || tensor.bytes < ends.firstForward.bytes)
        ends.firstForward = tensor;
      first = user;
    }
    const int producer = parameter.gradient < 0 ? -1 : graph.values[parameter.gradient].producer;
    if (producer < 0 || producer < last || graph.ops[producer].phase == Phase::Forward ||
        graph.ops[producer].generator)
      continue;
    const EndTensor tensor = endTensor(graph, parameter.gradient, parameter);
    if (producer > last || tensor.bytes < ends.lastGradient.bytes)
      ends.lastGradient = tensor;
    last = producer;
  }
  return ends;
}

bool mayDivide(const TensorLayout &layout, int64_t tp) {
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      for (const Factor &factor : segment.factors)
        if (factor.size % tp == 0)
          return true;
  return false;
}

DividedTotals dividedTotals(const Graph &graph, const Job &job, int64_t tp,
                            const std::function<bool(const GraphParameter &)> &isCounted) {
  auto totalsOf = [&](bool isDivided) {
    return parameterTotals(graph, job, [&](const GraphParameter &parameter) {
      return isCounted(parameter) &&
             mayDivide(graph.values[parameter.value].layout, tp) == isDivided;
    });
  };
  return {totalsOf(true), totalsOf(false)};
}

double parameterParts(const MeshShape &mesh, bool isExpert) {
  return double(mesh.tp) * (isExpert ? double(mesh.ep) : 1);
}

double leastParameterBytes(const MeshShape &mesh, const DataMode &mode,
                           const ParameterTotals &totals, bool isExpert) {
  double shards = double(mode.groups[isExpert].zero.size);
  const double stored =
      mode.zero == 3 && !mode.storesWeights ? totals.bytes - totals.castBytes : totals.bytes;
  double bytes =
      stored / (mode.zero == 3 ? shards : 1) +
      mode.gradientFactor * totals.gradientBytes / (mode.keepsGradientShards ? shards : 1) +
      (mode.offloadsStates ? 0 : totals.stateBytes / (mode.zero >= 1 ? shards : 1)) +
      (mode.keepGathered ? totals.backwardBytes : 0);
  return bytes / parameterParts(mesh, isExpert);
}

} // namespace tbc::planner

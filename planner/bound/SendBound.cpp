//===- SendBound.cpp - Bound on the sends of a pipeline -------------------===//

#include "planner/bound/SendBound.h"
#include "planner/graph/Stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

static SampledBytes bytesBySample(const Graph &graph, int value) {
  const TensorLayout &layout = graph.values[value].layout;
  const double bytes = double(layout.numElements() * layout.elementBytes);
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      for (const Factor &factor : segment.factors)
        if (factor.id == graph.batchFactor)
          return {bytes / double(factor.size), 0};
  return {0, bytes};
}

static std::vector<SampledBytes> adjacentCrossings(const Graph &graph,
                                                   const std::vector<bool> &mayBegin) {
  const int numForward = numForwardOps(graph);
  std::set<std::pair<double, double>> seen;
  for (int begin = 1, before = 0; begin < numForward; ++begin) {
    if (!mayBegin[size_t(begin)])
      continue;
    std::pair<double, double> most{0, 0};
    for (int op = begin; op == begin || (op < numForward && !mayBegin[size_t(op)]); ++op)
      for (int value : graph.ops[op].operands) {
        const int producer = graph.values[value].producer;
        if (producer < before || producer >= begin || graph.ops[producer].generator)
          continue;
        const SampledBytes bytes = bytesBySample(graph, value);
        most = std::max(most, {bytes.perSample, bytes.fixed});
      }
    seen.insert(most);
    before = begin;
  }
  std::vector<SampledBytes> result;
  for (const auto &[perSample, fixed] : seen)
    result.push_back({perSample, fixed});
  return result;
}

static std::vector<SampledBytes> liveCrossings(const Graph &graph,
                                               const std::vector<bool> &mayBegin) {
  const int numForward = numForwardOps(graph);
  std::vector<SampledBytes> change(size_t(numForward) + 1);
  for (const GraphValue &value : graph.values) {
    if (value.producer < 0 || value.producer >= numForward || graph.ops[value.producer].generator)
      continue;
    int last = -1;
    for (int user : value.users)
      if (user < numForward)
        last = std::max(last, user);
    if (last <= value.producer)
      continue;
    const SampledBytes bytes = bytesBySample(graph, int(&value - graph.values.data()));
    SampledBytes &begin = change[size_t(value.producer) + 1], &end = change[size_t(last) + 1];
    begin.perSample += bytes.perSample;
    begin.fixed += bytes.fixed;
    end.perSample -= bytes.perSample;
    end.fixed -= bytes.fixed;
  }
  std::map<std::pair<double, double>, bool> seen;
  std::vector<SampledBytes> result;
  SampledBytes live;
  for (int op = 0; op < numForward; ++op) {
    live.perSample += change[size_t(op)].perSample;
    live.fixed += change[size_t(op)].fixed;
    if (op > 0 && mayBegin[size_t(op)] &&
        seen.emplace(std::make_pair(live.perSample, live.fixed), true).second)
      result.push_back(live);
  }
  return result;
}

CutCrossings cutCrossings(const Graph &graph) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  return {liveCrossings(graph, mayBegin), adjacentCrossings(graph, mayBegin)};
}

/// Returns the least bytes of `crossings`; 0 without any.
static double leastOf(const std::vector<SampledBytes> &crossings, double samples) {
  double least = std::numeric_limits<double>::infinity();
  for (const SampledBytes &bytes : crossings)
    least = std::min(least, bytes.at(samples));
  return crossings.empty() ? 0 : least;
}

double leastSendBytes(const CutCrossings &crossings, double samples, bool hasOneChunk) {
  const double adjacent = leastOf(crossings.adjacent, samples);
  return hasOneChunk ? std::max(adjacent, leastOf(crossings.live, samples)) : adjacent;
}

} // namespace tbc::planner

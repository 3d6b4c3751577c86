//===- SendBound.cpp - Bound on the sends of a pipeline -------------------===//

#include "planner/bound/SendBound.h"
#include "planner/graph/Stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

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

/// Returns the forward ops that read `value`, ascending.
static std::vector<int> forwardReaders(const GraphValue &value, int numForward) {
  std::vector<int> readers;
  for (int user : value.users)
    if (user > value.producer && user < numForward)
      readers.push_back(user);
  std::sort(readers.begin(), readers.end());
  return readers;
}

std::vector<SampledBytes> firstSends(const Graph &graph, int64_t others) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  const int numForward = numForwardOps(graph);
  std::vector<int> rank(size_t(numForward), 0); // by op: the number of positions up to it
  for (int op = 1; op < numForward; ++op)
    rank[size_t(op)] = rank[size_t(op) - 1] + mayBegin[size_t(op)];
  const int numPositions = numForward > 0 ? rank.back() : 0;
  const int reach = int(std::min<int64_t>(others, numPositions));
  std::vector<SampledBytes> change(size_t(numPositions) + 1); // by position
  auto add = [&](int position, const SampledBytes &bytes, double sign) {
    change[size_t(position)].perSample += sign * bytes.perSample;
    change[size_t(position)].fixed += sign * bytes.fixed;
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue &value = graph.values[v];
    if (value.producer < 0 || value.producer >= numForward || graph.ops[value.producer].generator)
      continue;
    const SampledBytes bytes = bytesBySample(graph, int(v));
    int next = rank[size_t(value.producer)]; // the first position not looked at
    for (int reader : forwardReaders(value, numForward)) {
      const int end = rank[size_t(reader)], begin = std::max(next, end - reach);
      if (begin < end) {
        add(begin, bytes, 1);
        add(end, bytes, -1);
      }
      next = std::max(next, end);
    }
  }
  std::set<std::pair<double, double>> seen;
  std::vector<SampledBytes> result;
  SampledBytes sent;
  for (int position = 0; position < numPositions; ++position) {
    sent.perSample += change[size_t(position)].perSample;
    sent.fixed += change[size_t(position)].fixed;
    if (seen.emplace(sent.perSample, sent.fixed).second)
      result.push_back(sent);
  }
  return result;
}

CutSends cutSends(const Graph &graph) {
  const std::vector<bool> mayBegin = stageMayBegin(graph), isSum = gradientSums(graph);
  const std::vector<int> anchors = forwardAnchors(graph);
  const auto numForward = size_t(numForwardOps(graph));
  std::vector<int> piece(numForward, 0), begins{0}; // by op; by piece
  for (size_t op = 1; op < numForward; ++op) {
    if (mayBegin[op])
      begins.push_back(int(op));
    piece[op] = int(begins.size()) - 1;
  }
  auto pieceOf = [&](int op) { return piece[size_t(anchors[size_t(op)])]; };
  // By piece that a chunk begins with.
  std::vector<SampledBytes> forward(begins.size()), backward(begins.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue &value = graph.values[v];
    const int producer = value.producer;
    if (producer < 0 || graph.ops[producer].generator || isSum[size_t(producer)])
      continue;
    const bool isForward = graph.ops[producer].phase == Phase::Forward;
    const int from = pieceOf(producer), to = isForward ? from + 1 : from - 1;
    const bool isSent = std::any_of(value.users.begin(), value.users.end(), [&](int user) {
      return (graph.ops[user].phase == Phase::Forward) == isForward && !isSum[size_t(user)] &&
             !graph.ops[user].generator && pieceOf(user) == to;
    });
    if (!isSent)
      continue;
    const SampledBytes bytes = bytesBySample(graph, int(v));
    SampledBytes &of = isForward ? forward[size_t(to)] : backward[size_t(from)];
    of.perSample += bytes.perSample;
    of.fixed += bytes.fixed;
  }
  CutSends sends;
  std::map<std::pair<double, double>, int> numbers;
  auto number = [&](const SampledBytes &bytes) {
    auto [found, isNew] =
        numbers.try_emplace({bytes.perSample, bytes.fixed}, int(sends.kinds.size()));
    if (isNew)
      sends.kinds.push_back(bytes);
    return found->second;
  };
  sends.forward.assign(numForward, number({}));
  sends.backward = sends.forward;
  for (size_t i = 1; i < begins.size(); ++i) {
    sends.forward[size_t(begins[i])] = number(forward[i]);
    sends.backward[size_t(begins[i])] = number(backward[i]);
  }
  return sends;
}

int64_t chunksElsewhere(const std::vector<int> &stageOf) {
  const auto again = std::find(stageOf.begin() + 1, stageOf.end(), stageOf.front());
  return again == stageOf.end() ? int64_t(stageOf.size()) : again - stageOf.begin() - 1;
}

double leastSendBytes(const std::vector<SampledBytes> &sends, double samples) {
  double least = std::numeric_limits<double>::infinity();
  for (const SampledBytes &bytes : sends)
    least = std::min(least, bytes.at(samples));
  return sends.empty() ? 0 : least;
}

} // namespace tbc::planner

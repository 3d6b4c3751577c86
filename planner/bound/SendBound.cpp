//===- SendBound.cpp - Bound on the sends of a pipeline -------------------===//

#include "planner/bound/SendBound.h"
#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"

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
  if (int64_t samples = factorSize(layout, graph.batchFactor); samples > 0)
    return {bytes / double(samples), 0};
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

/// Returns by forward op the piece with it.
static std::vector<int> piecesOf(const Graph &graph) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  std::vector<int> piece(size_t(numForwardOps(graph)), 0);
  for (size_t op = 1; op < piece.size(); ++op)
    piece[op] = piece[op - 1] + int(mayBegin[op]);
  return piece;
}

std::vector<SentValue> sentValues(const Graph &graph) {
  const std::vector<bool> isSum = gradientSums(graph);
  const std::vector<int> anchors = forwardAnchors(graph), pieces = piecesOf(graph);
  auto pieceOf = [&](int op) { return pieces[size_t(anchors[size_t(op)])]; };
  std::vector<SentValue> sent;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const int producer = graph.values[v].producer;
    if (producer < 0 || graph.ops[producer].generator || isSum[size_t(producer)])
      continue;
    SentValue value;
    value.isForward = graph.ops[producer].phase == Phase::Forward;
    value.producer = pieceOf(producer);
    std::set<int> readers;
    for (int user : graph.values[v].users) {
      const bool isElsewhere =
          value.isForward ? pieceOf(user) > value.producer : pieceOf(user) < value.producer;
      if ((graph.ops[user].phase == Phase::Forward) == value.isForward && !isSum[size_t(user)] &&
          !graph.ops[user].generator && isElsewhere)
        readers.insert(pieceOf(user));
    }
    if (readers.empty())
      continue;
    value.bytes = bytesBySample(graph, int(v));
    value.readers.assign(readers.begin(), readers.end());
    sent.push_back(std::move(value));
  }
  return sent;
}

CutSends cutSends(const Graph &graph, const std::vector<SentValue> &values) {
  const std::vector<int> pieces = piecesOf(graph);
  const size_t numForward = pieces.size();
  std::vector<int> begins; // by piece
  for (size_t op = 0; op < numForward; ++op)
    if (pieces[op] == int(begins.size()))
      begins.push_back(int(op));
  // By piece that a chunk begins with.
  std::vector<SampledBytes> forward(begins.size()), backward(begins.size());
  for (const SentValue &value : values) {
    const int to = value.isForward ? value.producer + 1 : value.producer - 1;
    if (!std::binary_search(value.readers.begin(), value.readers.end(), to))
      continue;
    SampledBytes &of = value.isForward ? forward[size_t(to)] : backward[size_t(value.producer)];
    of.perSample += value.bytes.perSample;
    of.fixed += value.bytes.fixed;
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

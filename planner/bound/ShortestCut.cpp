//===- ShortestCut.cpp - All cuts of a small model, one by one ------------===//

#include "planner/bound/ShortestCut.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

void PieceSends::setTimes(const schedule::Pipeline &pipeline, const std::vector<int> &chunkOf,
                          std::vector<schedule::ChunkTimes> &times) const {
  const std::vector<int> &stageOf = pipeline.chunkStage;
  for (schedule::ChunkTimes &of : times)
    of.sendForwardSeconds = of.sendBackwardSeconds = 0;
  for (const Send &send : sends) {
    const int from = chunkOf[size_t(send.from)];
    int last = from; // the chunk of the reader before
    for (int reader : send.to) {
      const int to = chunkOf[size_t(reader)];
      if (to != last && stageOf[size_t(to)] != stageOf[size_t(from)])
        (send.isForward ? times[size_t(from)].sendForwardSeconds
                        : times[size_t(from)].sendBackwardSeconds) += send.seconds;
      last = to;
    }
  }
  const double first = std::max(least, times.front().sendForwardSeconds);
  for (schedule::ChunkTimes &of : times) {
    of.sendForwardSeconds = std::max(first, of.sendForwardSeconds);
    of.sendBackwardSeconds = std::max(first, of.sendBackwardSeconds);
  }
}

namespace {

/// The sends of a micro-batch on its way through all chunks and back, over all cuts.
class PassSends {
public:
  PassSends(const std::vector<int> &stageOf, const PieceSends &sends, size_t numPieces)
      : stageOf(stageOf), sends(sends), numPieces(numPieces) {
    for (size_t chunk = 0; chunk < stageOf.size(); ++chunk) {
      forward.push_back(hops(chunk, true) ? tableOf(true, windowOf(chunk, true)) : Table());
      backward.push_back(hops(chunk, false) ? tableOf(false, windowOf(chunk, false)) : Table());
    }
  }

  double run() const {
    std::set<double> firsts; // seconds of the first send
    for (size_t end = 1; end < numPieces; ++end)
      firsts.insert(firstUntil(end));
    double shortest = infinity;
    for (double first : firsts)
      shortest = std::min(shortest, secondsWith(first));
    return shortest;
  }

private:
  /// Seconds of a chunk's sends by its end and its begin.
  using Table = std::vector<double>;
  size_t at(size_t begin, size_t end) const { return end * (numPieces + 1) + begin; }

  /// Whether `chunk` sends to the next one (`isForward`) or to the one before.
  bool hops(size_t chunk, bool isForward) const {
    if (isForward ? chunk + 1 == stageOf.size() : chunk == 0)
      return false;
    return stageOf[chunk] != stageOf[isForward ? chunk + 1 : chunk - 1];
  }

  /// Returns the number of pieces after `chunk`, or before it, that lie on other stages for sure.
  int64_t windowOf(size_t chunk, bool isForward) const {
    const int64_t step = isForward ? 1 : -1;
    for (int64_t other = int64_t(chunk) + step;; other += step) {
      if (other < 0 || other == int64_t(stageOf.size()))
        return int64_t(numPieces);
      if (stageOf[size_t(other)] == stageOf[chunk])
        return std::abs(other - int64_t(chunk)) - 1;
    }
  }

  /// Counts the values with a reader in the window.
  Table tableOf(bool isForward, int64_t window) const {
    const int64_t pieces = int64_t(numPieces);
    Table table((numPieces + 1) * (numPieces + 1), 0);
    for (const PieceSends::Send &send : sends.sends) {
      if (send.isForward != isForward)
        continue;
      for (int64_t end = send.from + 1; isForward && end < pieces; ++end) {
        const auto reader = std::lower_bound(send.to.begin(), send.to.end(), end);
        if (reader != send.to.end() && *reader < end + window)
          table[at(size_t(send.from), size_t(end))] += send.seconds;
      }
      for (int64_t begin = send.from; !isForward && begin > 0; --begin) {
        const auto reader = std::lower_bound(send.to.begin(), send.to.end(), begin);
        if (reader != send.to.begin() && *std::prev(reader) >= begin - window)
          table[at(size_t(begin), size_t(send.from) + 1)] += send.seconds;
      }
    }
    // So far of one producer: the first piece of a forward chunk, the last of a backward one.
    for (size_t end = 2; end <= numPieces && isForward; ++end)
      for (size_t begin = end - 1; begin-- > 0;)
        table[at(begin, end)] += table[at(begin + 1, end)];
    for (size_t begin = 0; begin < numPieces && !isForward; ++begin)
      for (size_t end = begin + 2; end <= numPieces; ++end)
        table[at(begin, end)] += table[at(begin, end - 1)];
    return table;
  }

  double firstUntil(size_t end) const {
    return std::max(sends.least, forward[0].empty() ? 0 : forward[0][at(0, end)]);
  }

  /// Returns the least seconds of all sends if the first one takes `first`.
  double secondsWith(double first) const {
    std::vector<double> least(numPieces + 1, infinity); // by begin of the next chunk
    for (size_t end = 1; end < numPieces; ++end)
      if (firstUntil(end) == first)
        least[end] = forward[0].empty() ? 0 : first;
    for (size_t chunk = 1; chunk < stageOf.size(); ++chunk) {
      std::vector<double> next(numPieces + 1, infinity);
      const bool isLast = chunk + 1 == stageOf.size();
      for (size_t begin = chunk; begin < numPieces; ++begin)
        for (size_t end = isLast ? numPieces : begin + 1; end < numPieces + isLast; ++end) {
          double seconds = least[begin];
          if (!forward[chunk].empty())
            seconds += std::max(first, forward[chunk][at(begin, end)]);
          if (!backward[chunk].empty())
            seconds += std::max(first, backward[chunk][at(begin, end)]);
          next[end] = std::min(next[end], seconds);
        }
      least = std::move(next);
    }
    return least[numPieces];
  }

  const std::vector<int> &stageOf;
  const PieceSends &sends;
  const size_t numPieces;
  std::vector<Table> forward, backward; // by chunk; empty: it does not send
};

} // namespace

double leastPassSends(const std::vector<int> &stageOf, const PieceSends &sends, size_t numPieces) {
  if (stageOf.size() < 2 || numPieces < stageOf.size())
    return 0;
  return PassSends(stageOf, sends, numPieces).run();
}

namespace {

/// The shortest makespan over all cuts of parts into the chunks of a schedule, by depth-first
/// search over the ends of chunks.
class CutSearch {
public:
  CutSearch(const PipelineSchedule &schedule, std::vector<schedule::ChunkTimes> parts,
            const PieceSends &sends, double limit)
      : schedule(schedule), parts(std::move(parts)), sends(sends), limit(limit),
        times(schedule.pipeline.chunkStage.size()), chunkOf(this->parts.size(), 0),
        onStage(size_t(schedule.pipeline.numStages), 0) {}

  double run() {
    search(0, 0);
    return shortest;
  }

private:
  /// Cuts the parts from `first` on into chunk `chunk` and those after it.
  void search(size_t chunk, size_t first) {
    schedule::ChunkTimes &of = times[chunk];
    of.forwardSeconds = of.backwardSeconds = of.weightSeconds = 0;
    const size_t after = times.size() - chunk - 1; // each has at least one part
    double &seconds = onStage[size_t(schedule.pipeline.chunkStage[chunk])];
    const double before = seconds;
    for (size_t end = first + 1; end + after <= parts.size(); ++end) {
      of.forwardSeconds += parts[end - 1].forwardSeconds;
      of.backwardSeconds += parts[end - 1].backwardSeconds;
      of.weightSeconds += parts[end - 1].weightSeconds;
      chunkOf[end - 1] = int(chunk);
      seconds = before + of.forwardSeconds + of.backwardSeconds + of.weightSeconds;
      if (isTooLong(seconds))
        break;
      if (after > 0)
        search(chunk + 1, end);
      else if (end == parts.size())
        simulate();
    }
    seconds = before;
  }

  void simulate() {
    sends.setTimes(schedule.pipeline, chunkOf, times);
    shortest = std::min(shortest, schedule::makespanSeconds(schedule.actions, schedule.pipeline,
                                                            times, schedule.accumulation));
  }

  /// Whether a stage with these seconds per micro-batch excludes a better cut: it executes them for
  /// each micro-batch, one after the other.
  bool isTooLong(double seconds) const {
    constexpr double hair = 1e-9; // for rounding
    return seconds * double(schedule.accumulation) * (1 - hair) > std::min(shortest, limit);
  }

  const PipelineSchedule &schedule;
  const std::vector<schedule::ChunkTimes> parts;
  const PieceSends &sends;
  const double limit;
  std::vector<schedule::ChunkTimes> times; // by chunk
  std::vector<int> chunkOf;                // by part
  std::vector<double> onStage;             // by stage: seconds of a micro-batch so far
  double shortest = infinity;
};

} // namespace

double numCuts(const std::vector<bool> &mayBegin, size_t numChunks) {
  const auto positions = double(std::count(mayBegin.begin() + 1, mayBegin.end(), true));
  double cuts = 1;
  for (size_t i = 0; i + 1 < numChunks && cuts > 0; ++i)
    cuts = cuts * (positions - double(i)) / double(i + 1);
  return cuts;
}

double shortestCutSeconds(const PipelineSchedule &schedule, const std::vector<WorkShare> &ops,
                          const std::vector<bool> &mayBegin, const PieceSends &sends,
                          int64_t mostCuts, double limit) {
  const double cuts = numCuts(mayBegin, schedule.pipeline.chunkStage.size());
  if (cuts == 0)
    return infinity;
  if (cuts > double(mostCuts))
    return 0;
  std::vector<int> positions;
  for (int op = 1; op < int(ops.size()); ++op)
    if (mayBegin[size_t(op)])
      positions.push_back(op);
  // The seconds of the ops between two neighbouring positions, once for all cuts.
  const bool isParted = schedule::splitsBackward(schedule.kind);
  std::vector<schedule::ChunkTimes> between(positions.size() + 1);
  for (size_t op = 0, part = 0; op < ops.size(); ++op) {
    if (part < positions.size() && size_t(positions[part]) == op)
      ++part;
    schedule::ChunkTimes &of = between[part];
    of.forwardSeconds += ops[op].forward;
    of.backwardSeconds += ops[op].backward + (isParted ? 0 : ops[op].weight);
    of.weightSeconds += isParted ? ops[op].weight : 0;
  }
  return CutSearch(schedule, std::move(between), sends, limit).run();
}

} // namespace tbc::planner

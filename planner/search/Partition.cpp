//===- Partition.cpp - Cutting the model into pipeline stages -------------===//

#include "planner/search/Partition.h"

#include <algorithm>

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

static double secondsOf(const RangeSums &range) {
  return range.forward + range.backward + range.recompute + range.operandsForward +
         range.operandsBackward;
}

std::vector<int> cutPositions(const Profile &profile, int buckets) {
  int n = profile.numForward();
  std::vector<int> positions{0};
  if (n <= 64) {
    for (int i = 1; i <= n; ++i)
      if (i == n || profile.stageMayBegin[i])
        positions.push_back(i);
    return positions;
  }
  auto before = [&](int op) { return profile.sums.range(0, op)(secondsOf); };
  const double total = before(n);
  int begin = 1;
  for (int bucket = 1; bucket <= buckets && begin < n; ++bucket) {
    int best = -1, at = begin;
    for (; at < n && before(at) <= total * bucket / buckets; ++at)
      if (profile.stageMayBegin[at] &&
          (best < 0 || profile.crossingBytes(at - 1) < profile.crossingBytes(best - 1)))
        best = at;
    if (best > 0)
      positions.push_back(best);
    begin = at;
  }
  positions.push_back(n);
  return positions;
}

StageCutter::StageCutter(const std::vector<const Profile *> &profiles, std::vector<int> kinds,
                         std::vector<int> cutAt, const std::function<double(double)> &sendSeconds,
                         std::atomic<int64_t> *counted)
    : kindOf(std::move(kinds)), positions(std::move(cutAt)), send(positions.size(), 0),
      counted(counted) {
  const size_t n = positions.size();
  for (size_t i = 1; i + 1 < n; ++i)
    send[i] = sendSeconds(profiles[0]->crossingBytes(positions[i] - 1));
  for (const Profile *profile : profiles) {
    Ends &of = ends.emplace_back();
    for (size_t i = 0; i < n; ++i) {
      const double before = profile->sums.range(0, positions[i])(secondsOf);
      of.first.push_back(send[i] - before);
      of.last.push_back(send[i] + before);
    }
  }
}

/// Returns the least cost of all stages, and in `from` the begin of stage s with its end at
/// position j. `join(cost, seconds)` is the cost of stages that cost `cost` with one of `seconds`
/// behind them; it grows with both. No stage has more than `most` seconds.
template <typename Join>
double StageCutter::leastCost(int numStages, const LowestBegin &lowest, double most, Join join,
                              std::vector<int> &from) const {
  const int last = int(positions.size()) - 1;
  // least[j]: of stages 0 to s when they cover up to position j.
  std::vector<double> least(last + 1, infinity), before(last + 1, infinity);
  before[0] = 0;
  from.assign(size_t(numStages) * (last + 1), -1);
  int64_t compared = 0;
  for (int s = 0; s < numStages; ++s) {
    const std::vector<int> *low = lowest(s);
    std::fill(least.begin(), least.end(), infinity);
    for (int j = s + 1; j <= last; ++j) {
      int firstI = s, lastI = s == 0 ? 0 : j - 1;
      if (low)
        firstI = std::max(firstI, (*low)[j]);
      for (int i = lastI; i >= firstI; --i) {
        const double seconds = at(s, i, j);
        ++compared;
        // Stages with an earlier begin are longer, except for the send.
        if (seconds - send[i] > most || join(0, seconds - send[i]) >= least[j])
          break;
        const double cost = seconds > most ? infinity : join(before[i], seconds);
        if (cost >= least[j])
          continue;
        least[j] = cost;
        from[size_t(s) * (last + 1) + j] = i;
      }
    }
    std::swap(least, before);
  }
  if (counted)
    *counted += compared;
  return before[last];
}

std::optional<std::vector<int>> StageCutter::run(int numStages, const LowestBegin &lowest) const {
  const int last = int(positions.size()) - 1;
  if (numStages > last)
    return std::nullopt;
  std::vector<int> from;
  const double longest = leastCost(
      numStages, lowest, infinity,
      [](double cost, double seconds) { return std::max(cost, seconds); }, from);
  if (longest == infinity)
    return std::nullopt;
  // Squares are least where the others are even, too.
  leastCost(
      numStages, lowest, longest,
      [](double cost, double seconds) { return cost + seconds * seconds; }, from);
  std::vector<int> firstOps(numStages);
  for (int s = numStages - 1, j = last; s >= 0; --s) {
    j = from[size_t(s) * (last + 1) + j];
    firstOps[s] = positions[j];
  }
  return firstOps;
}

const std::optional<std::vector<int>> &StageCutter::cut(int numStages) const {
  return cuts.get(numStages, [&] { return run(numStages, [](int) { return nullptr; }); });
}

std::optional<std::vector<int>>
StageCutter::cutWithin(const std::vector<schedule::Moments> &moments, double limitBytes,
                       const std::function<double(int, int, int)> &bytes) const {
  // By kind of stage (its moments and its devices) and position: the first position from which such
  // a stage may reach it. A stage with a later begin or an earlier end holds no more, so the
  // positions ascend.
  int n = int(positions.size());
  std::vector<std::vector<int>> lowest(moments.size());
  auto lowestOf = [&](int s) {
    int same = 0;
    while (!(moments[size_t(same)] == moments[size_t(s)]) || kindAt(same) != kindAt(s))
      ++same;
    std::vector<int> &low = lowest[size_t(same)];
    if (low.empty()) {
      low.assign(n, 0);
      for (int j = 1, i = 0; j < n; low[j++] = i)
        while (i < j && bytes(positions[i], positions[j], s) > limitBytes)
          ++i;
    }
    return &low;
  };
  return run(int(moments.size()), lowestOf);
}

const std::vector<std::vector<double>> &StageCutter::restOf(int numChunks) const {
  return rests.get(numChunks, [&] { return computeRest(numChunks); });
}

std::vector<std::vector<double>> StageCutter::computeRest(int numChunks) const {
  int last = int(positions.size()) - 1;
  std::vector<std::vector<double>> rest(size_t(numChunks) + 1,
                                        std::vector<double>(size_t(last) + 1, infinity));
  rest[numChunks][last] = 0;
  for (int c = numChunks; c-- > 0;)
    for (int i = c == 0 ? 0 : 1; i < last; ++i)
      // Chunks with a later end are longer, except for the send.
      for (int j = i + 1; j <= last && at(c, i, j) - send[j] < rest[c][i]; ++j)
        rest[c][i] = std::min(rest[c][i], std::max(at(c, i, j), rest[c + 1][j]));
  return rest;
}

/// Depth-first search over chunks, the best ends first.
class StageCutter::Together {
public:
  Together(const StageCutter &cutter, const std::vector<int> &chunkStage, double limitBytes,
           const std::function<double(const std::vector<Span> &)> &bytes, int maxTries)
      : cutter(cutter), chunkStage(chunkStage), limitBytes(limitBytes), bytes(bytes),
        triesLeft(maxTries), last(int(cutter.positions.size()) - 1),
        held(*std::max_element(chunkStage.begin(), chunkStage.end()) + 1) {}

  std::optional<std::vector<int>> run() {
    int numChunks = int(chunkStage.size());
    if (numChunks > last)
      return std::nullopt;
    rest = &cutter.restOf(numChunks);
    search(0, 0, 0);
    return best.empty() ? std::nullopt : std::optional(best);
  }

private:
  void search(int chunk, int i, double longest) {
    if (chunk == int(chunkStage.size())) {
      best = firstOps;
      bestSeconds = longest;
      return;
    }
    std::vector<std::pair<double, int>> ends; // by their lower bound
    for (int j = i + 1; j <= last; ++j)
      if (double least = std::max({longest, cutter.at(chunk, i, j), (*rest)[chunk + 1][j]});
          least < bestSeconds)
        ends.push_back({least, j});
    std::sort(ends.begin(), ends.end());
    firstOps.push_back(cutter.positions[i]);
    std::vector<Span> &spans = held[chunkStage[chunk]];
    for (auto [least, j] : ends) {
      if (least >= bestSeconds || triesLeft-- <= 0)
        break;
      spans.push_back({chunk, cutter.positions[i], cutter.positions[j]});
      if (bytes(spans) <= limitBytes)
        search(chunk + 1, j, std::max(longest, cutter.at(chunk, i, j)));
      spans.pop_back();
    }
    firstOps.pop_back();
  }

  const StageCutter &cutter;
  const std::vector<int> &chunkStage;
  const double limitBytes;
  const std::function<double(const std::vector<Span> &)> &bytes;
  int triesLeft;
  const int last;
  std::vector<std::vector<Span>> held; // by stage
  const std::vector<std::vector<double>> *rest = nullptr;
  std::vector<int> firstOps, best;
  double bestSeconds = infinity;
};

std::optional<std::vector<int>>
StageCutter::cutTogether(const std::vector<int> &chunkStage, double limitBytes,
                         const std::function<double(const std::vector<Span> &)> &bytes,
                         int maxTries) const {
  return Together(*this, chunkStage, limitBytes, bytes, maxTries).run();
}

} // namespace tbc::planner

//===- Partition.cpp - Where pipeline stages are cut -----------------------===//

#include "planner/core/Partition.h"

#include <algorithm>

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

static double secondsOf(const RangeSums &range) {
  return range.forward + range.backward + range.recompute + range.operandsForward +
         range.operandsBackward;
}

std::vector<int> cutPositions(const Profile &profile, int buckets) {
  int n = profile.numForward;
  std::vector<int> positions{0};
  if (n <= 64) {
    for (int i = 1; i <= n; ++i)
      if (i == n || profile.stageMayBegin[i])
        positions.push_back(i);
    return positions;
  }
  double total = secondsOf(profile.sums[n]);
  int begin = 1;
  for (int bucket = 1; bucket <= buckets && begin < n; ++bucket) {
    int best = -1, at = begin;
    for (; at < n && secondsOf(profile.sums[at]) <= total * bucket / buckets; ++at)
      if (profile.stageMayBegin[at] &&
          (best < 0 || profile.crossingBytes[at - 1] < profile.crossingBytes[best - 1]))
        best = at;
    if (best > 0)
      positions.push_back(best);
    begin = at;
  }
  positions.push_back(n);
  return positions;
}

StageCutter::StageCutter(const Profile &profile, std::vector<int> cutAt,
                         const std::function<double(double)> &sendSeconds)
    : positions(std::move(cutAt)), seconds(positions.size() * positions.size(), infinity),
      send(positions.size(), 0) {
  for (size_t i = 1; i + 1 < positions.size(); ++i)
    send[i] = sendSeconds(profile.crossingBytes[positions[i] - 1]);
  for (size_t i = 0; i < positions.size(); ++i)
    for (size_t j = i + 1; j < positions.size(); ++j)
      at(int(i), int(j)) =
          secondsOf(profile.sums[positions[j]] - profile.sums[positions[i]]) + send[i] + send[j];
}

std::optional<std::vector<int>>
StageCutter::run(int numStages, const std::function<bool(int, int, int)> &allowed) const {
  int last = int(positions.size()) - 1;
  if (numStages > last)
    return std::nullopt;
  // longest[s][j]: the longest of stages 0 to s when they cover up to position j.
  std::vector<std::vector<double>> longest(numStages, std::vector<double>(last + 1, infinity));
  std::vector<std::vector<int>> from(numStages, std::vector<int>(last + 1, -1));
  for (int s = 0; s < numStages; ++s) {
    for (int j = s + 1; j <= last; ++j) {
      int firstI = s == 0 ? 0 : s, lastI = s == 0 ? 0 : j - 1;
      for (int i = lastI; i >= firstI; --i) {
        double before = s == 0 ? 0 : longest[s - 1][i];
        double value = std::max(before, at(i, j));
        if (at(i, j) - send[i] >= longest[s][j])
          break; // stages that begin earlier are only longer, but for the send
        if (value >= longest[s][j])
          continue;
        if (!allowed(s, i, j))
          break; // nor are stages that begin earlier
        longest[s][j] = value;
        from[s][j] = i;
      }
    }
  }
  if (from[numStages - 1][last] < 0)
    return std::nullopt;
  std::vector<int> firstOps(numStages);
  for (int s = numStages - 1, j = last; s >= 0; --s) {
    j = from[s][j];
    firstOps[s] = positions[j];
  }
  return firstOps;
}

const std::optional<std::vector<int>> &StageCutter::cut(int numStages) {
  auto [found, isNew] = cuts.try_emplace(numStages);
  if (isNew)
    found->second = run(numStages, [](int, int, int) { return true; });
  return found->second;
}

std::optional<std::vector<int>> StageCutter::cutWithin(
    const std::vector<schedule::InFlight> &inFlight, double limitBytes,
    const std::function<double(int, int, const schedule::InFlight &)> &bytes) const {
  // Stages that keep alike share their answers.
  size_t n = positions.size();
  std::vector<size_t> sameAs(inFlight.size());
  for (size_t s = 0; s < inFlight.size(); ++s)
    sameAs[s] = size_t(std::find(inFlight.begin(), inFlight.end(), inFlight[s]) - inFlight.begin());
  std::vector<std::vector<std::vector<double>>> known(inFlight.size());
  auto fits = [&](int s, int i, int j) {
    std::vector<std::vector<double>> &table = known[sameAs[size_t(s)]];
    table.resize(n);
    std::vector<double> &row = table[size_t(i)]; // few are ever looked at
    if (row.empty())
      row.assign(n, -1);
    double &held = row[size_t(j)];
    if (held < 0)
      held = bytes(positions[i], positions[j], inFlight[s]);
    return held <= limitBytes;
  };
  return run(int(inFlight.size()), fits);
}

} // namespace tbc::planner

//===- Partition.h - Where pipeline stages are cut -------------------------===//

#ifndef TBC_PLANNER_CORE_PARTITION_H
#define TBC_PLANNER_CORE_PARTITION_H

#include "planner/core/OnceMap.h"
#include "planner/core/Profile.h"

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace tbc::planner {

/// Positions of the forward order (numbers of ops before a cut) at which a stage may begin, with 0
/// and the end: in a short graph all at which one may begin; in a long one, in each of `buckets`
/// spans of equal time, the one of them that the fewest bytes cross.
std::vector<int> cutPositions(const Profile &profile, int buckets);

/// Cuts the forward order into stages so that the longest one is as short as can be, by dynamic
/// programming over `positions`; exact for that goal. For any number of threads.
class StageCutter {
public:
  /// `sendSeconds(bytes)` prices a send to the next stage; `counted` (null: nobody) is told how
  /// many stages are compared, and outlives this.
  StageCutter(const Profile &profile, std::vector<int> positions,
              const std::function<double(double)> &sendSeconds,
              std::atomic<int64_t> *counted = nullptr)
      : StageCutter({&profile}, {}, std::move(positions), sendSeconds, counted) {}

  /// The same where stages run on unlike devices: one profile for each kind of them, all of the
  /// same ops. `kindOf`: by stage, the number of its profile; empty: the first for all.
  StageCutter(const std::vector<const Profile *> &profiles, std::vector<int> kindOf,
              std::vector<int> positions, const std::function<double(double)> &sendSeconds,
              std::atomic<int64_t> *counted = nullptr);

  /// The first op of each stage, if the order has enough positions. Known after the first time.
  const std::optional<std::vector<int>> &cut(int numStages) const;

  /// The same, where stage s may hold at most `limitBytes`: `bytes(first, last, s)` as
  /// profiledBytes, with `moments[s]` on the devices of its kind.
  std::optional<std::vector<int>>
  cutWithin(const std::vector<schedule::Moments> &moments, double limitBytes,
            const std::function<double(int, int, int)> &bytes) const;

  /// The same where stages hold several chunks, at most `limitBytes` together: `bytes(spans)` is
  /// what the stage holds of the chunks of it that have been cut, {chunk, first, last} each, and
  /// grows with each of them. A search by depth that keeps the best it has found when it has asked
  /// for bytes `maxTries` times; exact if it ends before.
  struct Span {
    int chunk, first, last;
  };
  std::optional<std::vector<int>>
  cutTogether(const std::vector<int> &chunkStage, double limitBytes,
              const std::function<double(const std::vector<Span> &)> &bytes, int maxTries) const;

private:
  class Together;

  /// `lowest(s)`: by position, the first one from which stage s may reach it; null: any.
  std::optional<std::vector<int>>
  run(int numStages, const std::function<const std::vector<int> *(int)> &lowest) const;

  /// By chunk and position: the longest of this chunk and those after it if it begins there, at
  /// best, memory aside. Known after the first time.
  const std::vector<std::vector<double>> &restOf(int numChunks) const;
  std::vector<std::vector<double>> computeRest(int numChunks) const;

  int kindAt(int stage) const { return kindOf.empty() ? 0 : kindOf[size_t(stage)]; }
  /// Of stage `stage` from position i to position j.
  double at(int stage, int i, int j) const {
    return seconds[size_t(kindAt(stage))][size_t(i) * positions.size() + j];
  }

  std::vector<int> kindOf; // by stage; empty: all are of the first
  std::vector<int> positions;
  std::vector<std::vector<double>> seconds; // by kind: of a stage from one position to another
  std::vector<double> send;                 // by position
  std::atomic<int64_t> *counted;
  mutable OnceMap<int, std::optional<std::vector<int>>> cuts;
  mutable OnceMap<int, std::vector<std::vector<double>>> rests; // by number of chunks: restOf
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PARTITION_H

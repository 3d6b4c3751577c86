//===- Partition.h - Cutting the model into pipeline stages ---------------===//

#ifndef TBC_PLANNER_SEARCH_PARTITION_H
#define TBC_PLANNER_SEARCH_PARTITION_H

#include "planner/search/Profile.h"
#include "planner/support/OnceMap.h"

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace tbc::planner {

/// Returns candidate cuts: positions of the forward order (number of ops before a cut) where a
/// stage may begin, with 0 and the end. A short graph gives all of them. A long one gives one for
/// each of `buckets` spans of equal time, the one crossed by the fewest bytes.
std::vector<int> cutPositions(const Profile &profile, int buckets);

/// Cuts the forward order into stages with the shortest longest stage, by dynamic programming over
/// `positions`. Exact for this goal. Of such cuts takes that with the least sum of squared times:
/// 61 layers on 32 stages are 29 times two and three times one. Thread-safe.
class StageCutter {
public:
  /// `sendSeconds(bytes)` prices a send to the next stage. `counted` (may be null) is incremented
  /// by the number of compared stages, and must outlive this.
  StageCutter(const Profile &profile, std::vector<int> positions,
              const std::function<double(double)> &sendSeconds,
              std::atomic<int64_t> *counted = nullptr)
      : StageCutter({&profile}, {}, std::move(positions), sendSeconds, counted) {}

  /// The same for stages on heterogeneous devices: one profile of the same ops for each kind of
  /// device. `kindOf`: by stage, the index of its profile; empty: the first for all.
  StageCutter(const std::vector<const Profile *> &profiles, std::vector<int> kindOf,
              std::vector<int> positions, const std::function<double(double)> &sendSeconds,
              std::atomic<int64_t> *counted = nullptr);

  /// Returns the first op of each stage, if there are enough positions. Cached.
  const std::optional<std::vector<int>> &cut(int numStages) const;

  /// The same with at most `limitBytes` per stage: `bytes(first, last, s)` is profiledBytes with
  /// `moments[s]` on the devices of stage s.
  std::optional<std::vector<int>>
  cutWithin(const std::vector<schedule::Moments> &moments, double limitBytes,
            const std::function<double(int, int, int)> &bytes) const;

  /// The same for stages with several chunks, at most `limitBytes` together. `bytes(spans)` returns
  /// the bytes of a stage's chunks cut so far, {chunk, first, last} each, and grows with each
  /// chunk. A depth-first search; it keeps the best cut found after `maxTries` calls of `bytes`,
  /// and is exact if it ends earlier.
  struct Span {
    int chunk, first, last;
  };
  std::optional<std::vector<int>>
  cutTogether(const std::vector<int> &chunkStage, double limitBytes,
              const std::function<double(const std::vector<Span> &)> &bytes, int maxTries) const;

private:
  class Together;

  /// By stage and position: the first position from which the stage may reach it; null: any.
  using LowestBegin = std::function<const std::vector<int> *(int)>;
  std::optional<std::vector<int>> run(int numStages, const LowestBegin &lowest) const;
  template <typename Join>
  double leastCost(int numStages, const LowestBegin &lowest, double most, Join join,
                   std::vector<int> &from) const;

  /// By chunk and position: the best possible longest stage from this chunk on, if it begins there,
  /// without memory limits. Cached.
  const std::vector<std::vector<double>> &restOf(int numChunks) const;
  std::vector<std::vector<double>> computeRest(int numChunks) const;

  int kindAt(int stage) const { return kindOf.empty() ? 0 : kindOf[size_t(stage)]; }
  /// Seconds of stage `stage` from position i to position j.
  double at(int stage, int i, int j) const {
    const Ends &of = ends[size_t(kindAt(stage))];
    return of.first[size_t(i)] + of.last[size_t(j)];
  }

  std::vector<int> kindOf; // by stage; empty: all use the first
  std::vector<int> positions;
  /// By position: what a stage that begins or ends there has of its seconds. Their sum is the time
  /// of all ops between, with both sends.
  struct Ends {
    std::vector<double> first, last;
  };
  std::vector<Ends> ends;   // by kind
  std::vector<double> send; // by position
  std::atomic<int64_t> *counted;
  mutable OnceMap<int, std::optional<std::vector<int>>> cuts;
  mutable OnceMap<int, std::vector<std::vector<double>>> rests; // by number of chunks: restOf
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PARTITION_H

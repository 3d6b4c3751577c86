//===- PartitionTest.cpp - Where pipeline stages are cut ---------------------===//

#include "planner/search/Partition.h"
#include "runtime/schedule/Schedule.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace tbc::planner {
namespace {

/// Ops of random length and weight, sends of random size; any op may begin a stage.
struct RandomOrder {
  explicit RandomOrder(unsigned seed, int numOps) : random(seed) {
    profile.stageMayBegin.assign(size_t(numOps), true);
    for (int op = 0; op < numOps; ++op) {
      RangeSums one;
      one.forward = double(1 + random() % 20);
      weight.push_back(double(1 + random() % 20));
      each.push_back(one);
      profile.crossing.push_back(double(random() % 4));
    }
    setSums();
  }
  void setSums() {
    std::vector<int> itself(each.size());
    std::iota(itself.begin(), itself.end(), 0);
    profile.folding = std::make_shared<Folding>(itself);
    profile.sums = FoldedSums(profile.folding, each);
  }
  StageCutter cutter() const {
    return StageCutter(
        profile, cutPositions(profile, 0), [](double bytes) { return bytes; }, &counted);
  }
  double weigh(int first, int last) const {
    return std::accumulate(weight.begin() + first, weight.begin() + last, 0.0);
  }
  /// The bytes of a chunk; chunk c keeps 1 + c % 3 times as much.
  double bytes(const std::vector<StageCutter::Span> &spans) const {
    double sum = 0;
    for (const StageCutter::Span &span : spans)
      sum += weigh(span.first, span.last) * (1 + span.chunk % 3);
    return sum;
  }
  std::vector<double> secondsOfEach(const std::vector<int> &firstOps) const {
    std::vector<double> seconds;
    for (size_t c = 0; c < firstOps.size(); ++c) {
      int first = firstOps[c],
          last = c + 1 < firstOps.size() ? firstOps[c + 1] : profile.numForward();
      double own = profile.sums(first, last).forward;
      own += first > 0 ? profile.crossingBytes(first - 1) : 0;
      own += last < profile.numForward() ? profile.crossingBytes(last - 1) : 0;
      seconds.push_back(own);
    }
    return seconds;
  }
  double seconds(const std::vector<int> &firstOps) const {
    const std::vector<double> each = secondsOfEach(firstOps);
    return *std::max_element(each.begin(), each.end());
  }
  /// The longest stage, then the sum of squares.
  std::pair<double, double> unevenness(const std::vector<int> &firstOps) const {
    double squares = 0;
    for (double own : secondsOfEach(firstOps))
      squares += own * own;
    return {seconds(firstOps), squares};
  }
  /// Returns the least of all cuts into `chunks`.
  std::pair<double, double> mostEven(std::vector<int> firstOps, size_t chunks) const {
    if (firstOps.size() == chunks)
      return unevenness(firstOps);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::pair<double, double> least{infinity, infinity};
    for (int next = firstOps.back() + 1; next < profile.numForward(); ++next) {
      firstOps.push_back(next);
      least = std::min(least, mostEven(firstOps, chunks));
      firstOps.pop_back();
    }
    return least;
  }
  bool fits(const std::vector<int> &firstOps, const std::vector<int> &chunkStage,
            double limit) const {
    for (int stage : chunkStage) {
      std::vector<StageCutter::Span> spans;
      for (size_t c = 0; c < firstOps.size(); ++c)
        if (chunkStage[c] == stage)
          spans.push_back({int(c), firstOps[c],
                           c + 1 < firstOps.size() ? firstOps[c + 1] : profile.numForward()});
      if (bytes(spans) > limit)
        return false;
    }
    return true;
  }
  /// Returns the shortest of all cuts that fit, or infinity.
  double best(std::vector<int> firstOps, const std::vector<int> &chunkStage, double limit) const {
    if (firstOps.size() == chunkStage.size())
      return fits(firstOps, chunkStage, limit) ? seconds(firstOps)
                                               : std::numeric_limits<double>::infinity();
    double shortest = std::numeric_limits<double>::infinity();
    for (int next = firstOps.back() + 1; next < profile.numForward(); ++next) {
      firstOps.push_back(next);
      shortest = std::min(shortest, best(firstOps, chunkStage, limit));
      firstOps.pop_back();
    }
    return shortest;
  }

  std::mt19937 random;
  Profile profile;
  std::vector<RangeSums> each; // by op
  mutable std::atomic<int64_t> counted{0};
  std::vector<double> weight;
};

TEST(Partition, SeveralChunksPerStageAreCutAsByBruteForce) {
  int feasible = 0, infeasible = 0, bound = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    RandomOrder order(seed, 9 + int(seed % 4));
    std::vector<int> chunkStage =
        (seed % 2 ? schedule::Pipeline::loop(2, 2) : schedule::Pipeline::vee(2, 2)).chunkStage;
    if (seed % 5 == 0)
      chunkStage = {1, 0, 0, 1, 1};
    double whole = order.weigh(0, order.profile.numForward());
    double limit = whole * (0.6 + 0.1 * double(seed % 7));
    double expected = order.best({0}, chunkStage, limit);
    StageCutter cutter = order.cutter();
    auto bytes = [&](const std::vector<StageCutter::Span> &spans) { return order.bytes(spans); };
    auto cut = cutter.cutTogether(chunkStage, limit, bytes, 1 << 20);
    ASSERT_EQ(bool(cut), std::isfinite(expected)) << "seed " << seed;
    ++(cut ? feasible : infeasible);
    if (!cut)
      continue;
    EXPECT_EQ(order.seconds(*cut), expected) << "seed " << seed;
    EXPECT_TRUE(order.fits(*cut, chunkStage, limit)) << "seed " << seed;
    const auto &free = cutter.cut(int(chunkStage.size()));
    ASSERT_TRUE(free);
    bound += order.seconds(*free) < expected;
    EXPECT_GT(order.counted, 0);
  }
  // Otherwise the limit would have no effect.
  EXPECT_GT(feasible, 30);
  EXPECT_GT(infeasible, 30);
  EXPECT_GT(bound, 30);
}

TEST(Partition, OfEquallyLongStagesTheOthersAreEven) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    RandomOrder order(seed, 10);
    const size_t stages = 2 + seed % 4;
    auto cut = order.cutter().cut(int(stages));
    ASSERT_TRUE(cut);
    EXPECT_EQ(order.unevenness(*cut), order.mostEven({0}, stages)) << "seed " << seed;
  }
}

TEST(Partition, LayersThatDoNotDivideLeaveNoStageEmpty) {
  RandomOrder order(1, 61);
  std::fill(order.profile.crossing.begin(), order.profile.crossing.end(), 0);
  for (RangeSums &one : order.each)
    one.forward = 1;
  order.setSums();
  auto cut = order.cutter().cut(32);
  ASSERT_TRUE(cut);
  const std::vector<double> each = order.secondsOfEach(*cut);
  EXPECT_EQ(std::count(each.begin(), each.end(), 2), 29);
  EXPECT_EQ(std::count(each.begin(), each.end(), 1), 3);
}

TEST(Partition, SearchForChunksEndsInTime) {
  RandomOrder order(7, 60);
  std::vector<int> chunkStage = schedule::Pipeline::loop(8, 2).chunkStage;
  int asked = 0;
  auto bytes = [&](const std::vector<StageCutter::Span> &spans) {
    ++asked;
    return order.bytes(spans);
  };
  double limit = order.weigh(0, 60) * 2 / 8 * 1.2;
  auto cut = order.cutter().cutTogether(chunkStage, limit, bytes, 500);
  EXPECT_LE(asked, 500);
  if (cut)
    EXPECT_TRUE(order.fits(*cut, chunkStage, limit));
}

} // namespace
} // namespace tbc::planner

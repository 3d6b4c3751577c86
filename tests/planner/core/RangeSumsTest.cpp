//===- RangeSumsTest.cpp - Sums and maxima over folded ops against loops ---===//

#include "planner/search/RangeSums.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tbc::planner {
namespace {

/// Ops before a block, the block `repeats` times, and ops behind it; lengths of 0 among them.
std::vector<int> repeated(int before, int block, int repeats, int behind) {
  std::vector<int> likeOf;
  for (int op = 0; op < before; ++op)
    likeOf.push_back(op);
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (int op = 0; op < block; ++op)
      likeOf.push_back(before + op);
  for (int op = 0; op < behind; ++op)
    likeOf.push_back(before + block + op);
  return likeOf;
}

TEST(RangeSums, EqualLoopsOverTheOps) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const std::vector<int> likeOf = repeated(int(random() % 4), 1 + int(random() % 5),
                                             1 + int(random() % 6), int(random() % 4));
    const int numOps = int(likeOf.size());
    const int shorter = 1 + *std::max_element(likeOf.begin(), likeOf.end());
    std::vector<RangeSums> at(static_cast<size_t>(shorter));
    std::vector<double> values;
    for (RangeSums &one : at) {
      one.forward = double(random() % 100); // whole numbers: their sums are exact
      one.launchWeight = double(random() % 100);
      one.parameters[1].totals = double(random() % 100);
      values.push_back(double(random() % 100));
    }
    const auto folding = std::make_shared<Folding>(likeOf);
    ASSERT_EQ(folding->numOps(), numOps);
    const FoldedSums sums(folding, at);
    const FoldedMaximum most(folding, values);
    for (int first = 0; first <= numOps; ++first)
      for (int last = first; last <= numOps; ++last) {
        RangeSums expected;
        double largest = 0;
        for (int op = first; op < last; ++op) {
          expected.add(at[size_t(likeOf[size_t(op)])], 1);
          largest = std::max(largest, values[size_t(likeOf[size_t(op)])]);
        }
        const RangeSums found = sums(first, last);
        ASSERT_EQ(found.forward, expected.forward) << first << " to " << last;
        ASSERT_EQ(found.launchWeight, expected.launchWeight) << first << " to " << last;
        ASSERT_EQ(found.parameters[1].totals, expected.parameters[1].totals);
        ASSERT_EQ(sums.range(first, last)([](const RangeSums &of) { return of.forward; }),
                  expected.forward);
        ASSERT_EQ(most(first, last), largest) << first << " to " << last;
      }
  }
}

TEST(Folding, GoesOnWhereTheShorterGraphDoes) {
  const Folding folding({0, 1, 2, 1, 2, 3});
  ASSERT_EQ(folding.allRuns().size(), 2u);
  EXPECT_EQ(folding.run(1).first, 3);
  EXPECT_EQ(folding.run(1).begin, 1);
  EXPECT_EQ(folding.run(1).end, 4);
  EXPECT_EQ(folding.like(4), 2);
  EXPECT_EQ(folding.place(6).run, 1);
  EXPECT_EQ(folding.place(6).at, 4);
}

} // namespace
} // namespace tbc::planner

//===- SampleTest.cpp - The sample of candidates in plan.json ---------------===//

#include "planner/plan/PlanFile.h"
#include "planner/search/Explore.h"
#include "planner/search/SampleOf.h"
#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <tuple>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

/// A job with several thousands of candidates.
static Plan planOfMany() {
  Job job = jobFor(64, 512);
  Result<SearchAnswer> answer = search(makeChain({12}), job, smallCluster(), Pins());
  EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
  return answer ? answer->plan : Plan();
}

static const ScoredCandidate *ranked(const SearchSample &sample, int64_t rank) {
  for (const ScoredCandidate &candidate : sample.candidates)
    if (candidate.rank == rank)
      return &candidate;
  return nullptr;
}

TEST(SearchSample, HasThePlanAndItsAlternatives) {
  const Plan plan = planOfMany();
  const SearchSample &sample = plan.search;
  EXPECT_GE(sample.listed, sample.scored);
  EXPECT_GE(sample.scored, int64_t(sample.candidates.size()));
  EXPECT_LE(sample.candidates.size(), SearchSample::mostCandidates);
  const ScoredCandidate *chosen = ranked(sample, 0);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->stepSeconds, plan.prediction.stepSeconds);
  EXPECT_EQ(chosen->bytes, plan.prediction.highBytes);
  EXPECT_EQ(chosen->mesh, toString(plan.mesh));
  EXPECT_EQ(chosen->microBatch, plan.microBatch);
  EXPECT_TRUE(chosen->fits);
  ASSERT_FALSE(plan.alternatives.empty());
  for (size_t i = 0; i < plan.alternatives.size(); ++i) {
    const ScoredCandidate *other = ranked(sample, int64_t(i) + 1);
    if (!other && plan.alternatives[i].memory == MemoryVerdict::Tight)
      continue; // the plan without a margin is no candidate of this search
    ASSERT_TRUE(other) << i;
    EXPECT_EQ(other->stepSeconds, plan.alternatives[i].stepSeconds);
    EXPECT_EQ(other->mesh, toString(plan.alternatives[i].mesh));
  }
  for (const ScoredCandidate &candidate : sample.candidates)
    if (!candidate.rank)
      EXPECT_LE(candidate.boundSeconds, candidate.stepSeconds * (1 + 1e-9)) << candidate.mesh;
}

/// The front found here by comparing all pairs of all scored candidates.
TEST(SearchSample, HasTheParetoFrontOfAllScoredCandidates) {
  size_t largest = 0;
  for (auto [gpus, megabytes, layers] :
       {std::tuple(8, 1024, 12), {64, 3, 12}, {64, 2, 12}, {64, 2, 24}}) {
    const Graph graph = makeChain({layers});
    const Job job = jobFor(gpus, 8 * gpus);
    Result<Exploration> exploration =
        explore(graph, job, smallCluster(int64_t(megabytes) << 20), Pins(), 5, Purpose::Answer);
    ASSERT_TRUE(exploration) << exploration.error().message;
    struct Point {
      double seconds;
      int64_t bytes;
    };
    std::map<int, Point> points;
    for (const Candidate &c : exploration->scored)
      points[c.order] = {c.seconds, std::llround(c.peakBytes)};
    for (const ExactCandidate &exact : exploration->exact)
      points[exact.candidate.order] = {exact.plan.prediction.stepSeconds,
                                       exact.plan.prediction.highBytes};
    const SearchSample sample = sampleOf(*exploration, {}, MemoryVerdict::Fits);
    EXPECT_EQ(sample.scored, int64_t(points.size()));
    largest = std::max(largest, points.size());
    size_t front = 0;
    for (const auto &[order, point] : points) {
      bool isBeaten = std::any_of(points.begin(), points.end(), [&, p = point](const auto &other) {
        const Point &q = other.second;
        return q.seconds <= p.seconds && q.bytes <= p.bytes &&
               (q.seconds < p.seconds || q.bytes < p.bytes);
      });
      if (isBeaten)
        continue;
      ++front;
      EXPECT_TRUE(std::any_of(sample.candidates.begin(), sample.candidates.end(),
                              [p = point](const ScoredCandidate &c) {
                                return c.stepSeconds == p.seconds && c.bytes == p.bytes;
                              }))
          << gpus << " devices: " << point.seconds << " s, " << point.bytes << " bytes";
    }
    EXPECT_GT(front, 1u);
    EXPECT_EQ(sample.candidates.size(), std::min(points.size(), SearchSample::mostCandidates));
  }
  EXPECT_GT(largest, SearchSample::mostCandidates) << "some job must need a sample";
}

TEST(SearchSample, ParetoFrontKeepsOneOfEquals) {
  auto candidate = [](double seconds, int64_t bytes) {
    ScoredCandidate c;
    c.stepSeconds = seconds;
    c.bytes = bytes;
    return c;
  };
  EXPECT_THAT(paretoFront({candidate(1, 9), candidate(1, 9), candidate(2, 9), candidate(3, 4)}),
              testing::ElementsAre(true, false, false, true));
}

TEST(SearchSample, IsReadAsWritten) {
  const Plan plan = planOfMany();
  const std::string text = writePlan(plan);
  Result<Plan> read = readPlan(text, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writePlan(*read), text);
  EXPECT_EQ(read->search.candidates.size(), plan.search.candidates.size());
  // A plan of an earlier build has no such key.
  auto json = nlohmann::json::parse(text);
  json.erase("search");
  read = readPlan(json.dump(), "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->search.isEmpty());
}

TEST(SearchSample, MalformedRowsAreNamed) {
  const auto good = nlohmann::json::parse(writePlan(planOfMany()));
  auto messageOf = [&](const std::function<void(nlohmann::json &)> &edit) {
    auto json = good;
    edit(json["search"]);
    Result<Plan> read = readPlan(json.dump(), "plan.json");
    return read ? "read" : read.error().message;
  };
  EXPECT_THAT(messageOf([](auto &s) { s["candidates"][1][5] = "fast"; }),
              HasSubstr("\"search.candidates[1]\" must have a number from 0 as its step_seconds"));
  EXPECT_THAT(messageOf([](auto &s) { s["candidates"][0].erase(3); }), HasSubstr("10 cells"));
  EXPECT_THAT(messageOf([](auto &s) { s["candidates"][0] = 1; }), HasSubstr("10 cells"));
  EXPECT_THAT(messageOf([](auto &s) { s["candidates"][0][9] = -1; }), HasSubstr("rank"));
  EXPECT_THAT(messageOf([](auto &s) { s["columns"][0] = "shape"; }), HasSubstr("columns"));
  EXPECT_THAT(messageOf([](auto &s) {
                for (int i = 0; i < 201; ++i)
                  s["candidates"].push_back(s["candidates"][0]);
              }),
              HasSubstr("more than 200"));
}

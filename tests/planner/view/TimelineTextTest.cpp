//===- TimelineTextTest.cpp - The predicted step as lines of text -----------===//

#include "planner/view/TimelineText.h"
#include "tests/planner/view/Plans.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

static std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

/// Returns the columns of the step in the line of a stage.
static std::string columnsOf(const std::vector<std::string> &lines, int stage, int width) {
  const std::string begin = "stage " + std::to_string(stage) + " ";
  for (const std::string &line : lines)
    if (line.rfind(begin, 0) == 0)
      return line.substr(11, size_t(width) - 28);
  ADD_FAILURE() << "no line of stage " << stage;
  return "";
}

TEST(TimelineText, FitsItsWidthAndHasEveryStage) {
  for (const char *schedule : {"gpipe", "1f1b", "zero-bubble"})
    for (int width : {40, 80, 160, 333}) {
      Result<StepTimeline> timeline = timelineOf(planOf("pp=4,dp=2", schedule));
      ASSERT_TRUE(timeline) << timeline.error().message;
      const std::vector<std::string> lines = linesOf(timelineText(*timeline, width));
      for (const std::string &line : lines) {
        const bool isPicture = line.rfind("stage ", 0) == 0 || line.rfind(" ", 0) == 0;
        EXPECT_LE(line.size(), size_t(std::max(isPicture ? width : 80, 0))) << line;
      }
      for (int stage = 0; stage < 4; ++stage)
        EXPECT_EQ(columnsOf(lines, stage, width).size(), size_t(width) - 28);
    }
}

/// Each letter has the share of its time: at 4,000 columns, rounding is small.
TEST(TimelineText, HasTheSharesOfTheTimeline) {
  for (const char *mesh : {"pp=4,dp=2", "pp=2,tp=4", "fsdp=8"}) {
    const Plan plan = planOf(mesh, mesh[0] == 'p' ? "zero-bubble" : "");
    Result<StepTimeline> timeline = timelineOf(plan);
    ASSERT_TRUE(timeline) << timeline.error().message;
    const int width = 4028, count = width - 28;
    const std::vector<std::string> lines = linesOf(timelineText(*timeline, width));
    for (size_t stage = 0; stage < timeline->stages.size(); ++stage) {
      std::map<char, double> expected, seen;
      int64_t waited = 0;
      for (const Slice &slice : timeline->stages[stage].slices) {
        if (slice.thread != int(StageThread::Compute))
          continue;
        const int64_t ns = slice.endNs - slice.beginNs;
        if (std::strcmp(slice.category, "wait") == 0)
          waited += ns;
        if (std::strcmp(slice.category, "action") == 0)
          expected['a'] += double(ns);
      }
      expected['a'] -= double(waited);
      expected['~'] = double(waited);
      expected['.'] = double(timeline->stepNs) - expected['a'] - expected['~'];
      for (char letter : columnsOf(lines, int(stage), width))
        ++seen[std::isalpha(static_cast<unsigned char>(letter)) ? 'a' : letter];
      for (const auto &[letter, ns] : expected)
        EXPECT_NEAR(seen[letter] / count, ns / double(timeline->stepNs), 0.02)
            << mesh << ", stage " << stage << ", " << letter;
    }
  }
}

TEST(TimelineText, AlternatesTheMicroBatches) {
  Plan plan = planOf("pp=4,dp=2", "1f1b");
  ASSERT_GT(plan.accumulation, 1);
  const std::string line = columnsOf(linesOf(timelineText(*timelineOf(plan), 500)), 0, 500);
  EXPECT_THAT(line, testing::AllOf(HasSubstr("Ff"), HasSubstr("bf"), HasSubstr("U")));
  EXPECT_LT(line.find('F'), line.find('f'));
  EXPECT_EQ(line.find('W'), std::string::npos) << "1f1b does not split backward";
}

TEST(TimelineText, ReportsTheSecondsOfEachStage) {
  const Plan plan = planOf("pp=4,dp=2", "zero-bubble");
  Result<StepTimeline> timeline = timelineOf(plan);
  ASSERT_TRUE(timeline);
  const auto json = nlohmann::json::parse(toJson(timelineReport(*timeline), "timeline"));
  EXPECT_NEAR(json["step_seconds"], plan.prediction.stepSeconds, 1e-8);
  ASSERT_EQ(json["stages"].size(), 4u);
  for (const auto &stage : json["stages"]) {
    double sum = 0;
    for (const char *key : {"forward", "backward", "weight", "update", "idle"})
      sum += stage[key].get<double>();
    EXPECT_NEAR(sum, plan.prediction.stepSeconds, 1e-7);
    EXPECT_GT(stage["weight"], 0.0);
    EXPECT_GT(stage["peak_bytes"], 0);
  }
}

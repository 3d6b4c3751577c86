//===- SizeTest.cpp - Sizes, prices and sensitivities ------------------------===//

#include "planner/size/Size.h"
#include "planner/explain/Sensitivities.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>

#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

TEST(Size, ReadsCountsAndDays) {
  EXPECT_EQ(parseCount("15T"), 15e12);
  EXPECT_EQ(parseCount("300B"), 300e9);
  EXPECT_EQ(parseCount("1.5M"), 1.5e6);
  EXPECT_EQ(parseCount("2e6"), 2e6);
  for (const char *text : {"", "T", "-1", "0", "0.5", "15TT", "15 T", "nan", "inf", "0x10", "1e30"})
    EXPECT_FALSE(parseCount(text)) << text;
  EXPECT_EQ(parseDays("30d"), 30);
  EXPECT_EQ(parseDays("2w"), 14);
  EXPECT_EQ(parseDays("36h"), 1.5);
  for (const char *text : {"30", "d", "0d", "-1d", "3x"})
    EXPECT_FALSE(parseDays(text)) << text;
}

TEST(Size, DoublesItsSizes) {
  EXPECT_THAT(sizesBetween(8, 64), testing::ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sizesBetween(8, 48), testing::ElementsAre(8, 16, 32, 48));
  EXPECT_THAT(sizesBetween(8, 8), testing::ElementsAre(8));
}

TEST(Size, TakesTheLargestBatchThatDevicesShare) {
  EXPECT_EQ(batchWithin(500, 64), 448);
  EXPECT_EQ(batchWithin(500, 1024), 256);
  EXPECT_EQ(batchWithin(1, 8), 1);
  for (int64_t most = 1; most < 200; ++most)
    for (int64_t devices : {1, 8, 24, 64}) {
      const int64_t batch = batchWithin(most, devices);
      EXPECT_LE(batch, most);
      EXPECT_GT(2 * batch, most) << "at most half is given away";
      EXPECT_TRUE(batch % devices == 0 || (batch & (batch - 1)) == 0);
    }
}

/// The front as defined, by comparing all pairs of random rows.
TEST(Size, MarksTheFront) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<SizeRow> rows(size_t(1 + random() % 12));
    for (SizeRow &row : rows) {
      auto number = [&] { return double(1 + random() % 4); };
      row.days.middle = number();
      row.deviceHours.middle = number();
      if (random() % 2)
        row.money = Estimate{0, number(), 0};
    }
    markFront(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      bool isBeaten = false;
      for (size_t k = 0; k < rows.size(); ++k) {
        std::vector<std::pair<double, double>> pairs = {
            {rows[k].days.middle, rows[i].days.middle},
            {rows[k].deviceHours.middle, rows[i].deviceHours.middle}};
        if (rows[k].money && rows[i].money)
          pairs.push_back({rows[k].money->middle, rows[i].money->middle});
        const bool noWorse = std::all_of(pairs.begin(), pairs.end(),
                                         [](const auto &p) { return p.first <= p.second; });
        const bool better = std::any_of(pairs.begin(), pairs.end(),
                                        [](const auto &p) { return p.first < p.second; });
        isBeaten |= noWorse && (better || k < i);
      }
      EXPECT_EQ(rows[i].isFront, !isBeaten);
    }
  }
}

TEST(Size, ExamplePricesAreOfPresets) {
  const PriceList prices = examplePrices();
  EXPECT_TRUE(prices.isExample);
  EXPECT_FALSE(prices.byCluster.empty());
  const std::vector<std::string> presets = clusterPresets();
  for (const auto &[cluster, price] : prices.byCluster) {
    EXPECT_THAT(presets, testing::Contains(cluster));
    EXPECT_GT(price.perDeviceHour, 0);
    EXPECT_FALSE(price.date.empty() || price.source.empty()) << cluster;
  }
}

static SizedPlan sized(double seconds, double uncertainty = 0.2) {
  SizedPlan plan;
  plan.gpus = 8, plan.batch = 16, plan.sequence = 4;
  plan.stepSeconds = seconds;
  plan.lowSeconds = seconds * (1 - uncertainty);
  plan.highSeconds = seconds * (1 + uncertainty);
  plan.decisions = "dp=8";
  return plan;
}

TEST(Sensitivity, TiesAreWithinTwoPercentAndTheInterval) {
  EXPECT_EQ(worthOf(sized(1), sized(1)), Worth::Tie);
  EXPECT_EQ(worthOf(sized(1), sized(1.015)), Worth::Tie);
  EXPECT_EQ(worthOf(sized(1), sized(1.03)), Worth::Loss);
  EXPECT_EQ(worthOf(sized(1), sized(0.97)), Worth::Gain);
  EXPECT_EQ(worthOf(sized(1, 0.001), sized(1.015, 0.001)), Worth::Loss) << "apart";
  SizedPlan twice = sized(2);
  twice.batch *= 2;
  EXPECT_EQ(worthOf(sized(1), twice), Worth::Tie) << "tokens per second count";
}

TEST(Sensitivity, IsReadAsWritten) {
  Sensitivity answer;
  answer.model = "m.onnx", answer.cluster = "small", answer.fingerprint = "0123";
  answer.plan = answer.base = sized(1);
  answer.rows = {{"batch", "x 2", Worth::Gain, "", sized(0.5), 2, true},
                 {"nodes", "-1", Worth::Impossible, "no mesh", {}, 0, false}};
  Result<Sensitivity> read = readSensitivity(toJson(answer), "s.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(toJson(*read), toJson(answer));
  EXPECT_EQ(toText(*read), toText(answer));
  EXPECT_THAT(readSensitivity("{}", "s.json").error().message, HasSubstr("not the output of"));
  EXPECT_THAT(readSensitivity("x", "s.json").error().message, HasSubstr("not the output of"));
  std::string broken = toJson(answer);
  broken.replace(broken.find("\"gain\""), 6, "\"good\"");
  EXPECT_THAT(readSensitivity(broken, "s.json").error().message, HasSubstr("rows[0].worth"));
}

TEST(Sensitivity, SortsBySubject) {
  auto row = [](const char *subject, double ratio) {
    SensitivityRow row;
    row.subject = subject;
    row.ratio = ratio;
    row.worth = Worth::Gain;
    return row;
  };
  std::vector<SensitivityRow> rows = {row("a", 1.1), row("b", 1.2), row("a", 0.7), row("b", 0.9)};
  sortByEffect(rows);
  EXPECT_THAT(rows, testing::ElementsAre(testing::Field(&SensitivityRow::ratio, 1.1),
                                         testing::Field(&SensitivityRow::ratio, 0.7),
                                         testing::Field(&SensitivityRow::ratio, 1.2),
                                         testing::Field(&SensitivityRow::ratio, 0.9)));
}

/// A change of a mixed cluster changes every kind of its nodes.
TEST(Sensitivity, ChangesEveryKindOfNodes) {
  Cluster one = smallCluster(), two = smallCluster();
  one.numNodes = two.numNodes = 1;
  two.name = "other";
  two.memoryBytes *= 2;
  Result<Cluster> mixed = clusterOfGroups("mixed", "two kinds", {one, two}, std::nullopt);
  ASSERT_TRUE(mixed) << mixed.error().message;
  Plan plan;
  plan.job = jobFor(8, 64);
  plan.cluster = *mixed;
  plan.memoryLimitBytes = 1000;
  std::map<std::string, int> subjects;
  constexpr int64_t gib = int64_t(1) << 30;
  for (const ChangedJob &changed : changesOf(plan)) {
    ++subjects[changed.subject];
    if (changed.subject == "memory") {
      EXPECT_EQ(changed.memoryLimitBytes, 1000 + gib);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_EQ(changed.cluster.groups[i].memoryBytes, mixed->groups[i].memoryBytes + gib);
    } else if (changed.subject == "network between nodes") {
      for (size_t i = 0; i < 2; ++i)
        EXPECT_NE(changed.cluster.groups[i].interNode.bytesPerSecond,
                  mixed->groups[i].interNode.bytesPerSecond);
    }
  }
  EXPECT_EQ(subjects, (std::map<std::string, int>{{"memory", 1},
                                                  {"memory bandwidth", 2},
                                                  {"network in a node", 2},
                                                  {"network between nodes", 2},
                                                  {"matmul efficiency", 2},
                                                  {"nodes", 2},
                                                  {"batch", 1}}));
}

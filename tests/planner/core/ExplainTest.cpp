//===- ExplainTest.cpp - The reasons of a plan ----------------------------===//

#include "planner/explain/Explain.h"
#include "planner/memory/Memory.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/ModelNames.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

static Job chainJob(int64_t gpus) {
  Job job;
  job.gpus = gpus;
  job.globalBatch = 32;
  return job;
}

static Plan planFor(const Graph &graph, int64_t gpus, const std::string &mesh,
                    const std::string &schedule = "") {
  Pins pins;
  if (!mesh.empty())
    pins.mesh = *parseMesh(mesh);
  pins.schedule = schedule;
  Result<SearchAnswer> answer = search(graph, chainJob(gpus), *loadCluster("h100-sxm"), pins);
  EXPECT_TRUE(answer) << answer.error().message;
  return answer->plan;
}

static const Table &tableOf(const Report &report, const std::string &key) {
  for (const Table &table : report.tables)
    if (table.key == key)
      return table;
  ADD_FAILURE() << "no table " << key;
  return report.tables.front();
}

static size_t columnOf(const Table &table, const std::string &key) {
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (table.columns[i].key == key)
      return i;
  ADD_FAILURE() << "no column " << key;
  return 0;
}

static std::string factOf(const Report &report, const std::string &key) {
  for (const Fact &fact : report.facts)
    if (fact.key == key)
      return fact.value.toText();
  return "";
}

static double sumOf(const Table &table, const std::string &key) {
  double sum = 0;
  for (const auto &row : table.rows)
    sum += row[columnOf(table, key)].number;
  return sum;
}

TEST(Explain, MemoryAddsUpToThePrediction) {
  Graph graph = makeChain({4});
  for (const char *mesh : {"fsdp=4", "pp=2,tp=2"}) {
    Plan plan = planFor(graph, 4, mesh);
    Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
    ASSERT_TRUE(explained);
    Report report = explainMemory(*explained);
    const Table &stages = tableOf(report, "stages"), &lines = tableOf(report, "lines");
    ASSERT_EQ(int64_t(stages.rows.size()), plan.mesh.pp);
    double largest = 0;
    for (const auto &row : stages.rows) {
      largest = std::max(largest, row[columnOf(stages, "bytes")].number);
      EXPECT_NE(row[columnOf(stages, "peak_op")].text, "");
    }
    EXPECT_EQ(int64_t(largest), plan.prediction.peakBytes);
    EXPECT_EQ(sumOf(lines, "bytes"), sumOf(stages, "bytes"));
  }
}

TEST(Explain, CausesAreTheCollectives) {
  Graph graph = makeChain({4});
  for (const char *mesh : {"fsdp=4", "tp=4", "dp=2,tp=2"}) {
    Plan plan = planFor(graph, 4, mesh);
    Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
    ASSERT_TRUE(explained);
    Report report = explainCommunication(*explained);
    double count = 0, bytes = 0;
    for (const CollectiveLine &line : explained->prediction.collectives) {
      count += double(line.count.count);
      bytes += double(line.count.count) * double(line.count.bytes);
    }
    EXPECT_GT(count, 0);
    for (const char *table : {"collectives", "causes"}) {
      EXPECT_EQ(sumOf(tableOf(report, table), "count"), count) << table;
      EXPECT_EQ(sumOf(tableOf(report, table), "bytes"), bytes) << table;
    }
    std::set<std::string> causes;
    const Table &why = tableOf(report, "causes");
    for (const auto &row : why.rows)
      causes.insert(row[columnOf(why, "cause")].text);
    // Repeats share a line.
    for (const std::string &cause : causes)
      EXPECT_EQ(cause.find(".1."), std::string::npos) << cause;
  }
}

TEST(Explain, KernelsAddUpToThePrediction) {
  Graph graph = makeChain({4});
  for (const char *mesh : {"dp=4", "fsdp=2,tp=2", "pp=2,dp=2"})
    for (const char *executor : {"tbc", "megatron"}) {
      Plan plan = planFor(graph, 4, mesh);
      Result<Cluster> cluster = runBy(plan.cluster, executor);
      ASSERT_TRUE(cluster);
      plan.cluster = *cluster;
      Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
      ASSERT_TRUE(explained);
      const TimeSplit &time = explained->prediction.time;
      Report report = explainKernels(*explained);
      const Table &kernels = tableOf(report, "kernels");
      const double seconds = time.compute + time.recompute + time.update;
      EXPECT_NEAR(sumOf(kernels, "seconds"), seconds, 1e-9 * seconds) << mesh << " " << executor;
      EXPECT_NEAR(sumOf(kernels, "share"), 1, 1e-9);
      EXPECT_LE(sumOf(kernels, "roof_seconds"), seconds);
      EXPECT_GT(sumOf(kernels, "roof_seconds"), 0);
      EXPECT_GT(sumOf(kernels, "launches"), 0);
    }
}

/// Kernels skip what a causal mask hides, so their roof has as many FLOPs less.
TEST(Explain, TheRoofHasExecutedFlops) {
  Graph graph = makeChain({4});
  for (reshard::GraphOp &op : graph.ops)
    if (op.kernelClass == reshard::KernelClass::Matmul)
      op.kernelClass = reshard::KernelClass::CausalAttention;
  Plan plan = planFor(graph, 4, "dp=4");
  plan.cluster.memoryBytesPerSecond = 1e30;
  auto roofWith = [&](double executed) {
    plan.cluster.kernels[reshard::KernelClass::CausalAttention].executedFraction = executed;
    Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
    EXPECT_TRUE(explained);
    const Report report = explainKernels(*explained);
    const Table &kernels = tableOf(report, "kernels");
    double seconds = 0;
    for (const auto &row : kernels.rows)
      if (row[columnOf(kernels, "class")].text == name(reshard::KernelClass::CausalAttention))
        seconds += row[columnOf(kernels, "roof_seconds")].number;
    return seconds;
  };
  EXPECT_GT(roofWith(1), 0);
  EXPECT_NEAR(roofWith(0.5), 0.5 * roofWith(1), 1e-9 * roofWith(1));
}

TEST(Explain, LayersAreUnfolded) {
  Graph graph = makeChain({6});
  Plan plan = planFor(graph, 4, "dp=4");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  const Report report = explainLayers(*explained);
  const Table &layers = tableOf(report, "layers");
  int64_t folded = 0;
  double seconds = 0;
  for (const BlockRow &row : plan.blocks) {
    folded += row.count;
    seconds += row.seconds * double(row.count);
  }
  EXPECT_EQ(int64_t(layers.rows.size()), folded);
  EXPECT_GT(layers.rows.size(), plan.blocks.size());
  // All repeats but the first and the last are priced alike.
  EXPECT_NEAR(sumOf(layers, "seconds"), seconds, 0.1 * seconds);
}

TEST(Explain, ATensorIsNamedByItsNameOrAGlob) {
  Graph graph = makeChain({2});
  std::string name = graph.values[graph.parameters[1].value].name;
  Plan plan = planFor(graph, 4, "fsdp=4");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  Result<Report> report = explainTensor(*explained, name);
  ASSERT_TRUE(report) << report.error().message;
  const Table &shardings = tableOf(*report, "shardings");
  std::string text = toText(*report);
  for (const char *part : {"stored", "flat over fsdp", "used by", "whole", "optimizer state",
                           "gradient", "pinned: ZeRO-3"})
    EXPECT_THAT(text, HasSubstr(part));
  // Stored: a quarter of the parameter.
  const tbc::reshard::TensorLayout &layout =
      explained->step.graph.values[graph.parameters[1].value].layout;
  const int64_t stored = (layout.numElements() + 3) / 4;
  EXPECT_EQ(shardings.rows[0][columnOf(shardings, "bytes")].number,
            double(stored * layout.elementBytes));
  EXPECT_FALSE(tableOf(*report, "collectives").rows.empty());

  Result<Report> several = explainTensor(*explained, "h.0.u*");
  ASSERT_TRUE(several) << several.error().message;
  EXPECT_GT(several->tables.front().rows.size(), 1u);
  Result<Report> all = explainTensor(*explained, "*");
  ASSERT_FALSE(all);
  EXPECT_THAT(all.error().message, HasSubstr("name at most"));
  Result<Report> none = explainTensor(*explained, name + "x");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::Usage);
  EXPECT_THAT(none.error().message, HasSubstr("did you mean " + name));
}

/// A tied table has its name in one module only, and is asked for by those of both.
TEST(Explain, ATiedTensorIsNamedByEachOfItsModules) {
  Graph graph = makeChain({2});
  auto names = std::make_shared<ModelNames>();
  names->modules["embed"] = "transformer.embedding";
  names->parameters["wte"] = "lm_head.weight";
  Plan plan = planFor(graph, 4, "fsdp=4");
  plan.job.names = names;
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  for (const char *name : {"lm_head.weight", "transformer.embedding", "transformer.embedding.*",
                           "transformer.embedding.weight"}) {
    Result<Report> report = explainTensor(*explained, name);
    ASSERT_TRUE(report) << report.error().message;
    const Table &tensors = tableOf(*report, "tensors");
    ASSERT_EQ(tensors.rows.size(), 1u) << name;
    EXPECT_EQ(tensors.rows[0][0].text, "lm_head.weight") << name;
  }
  Result<Report> none = explainTensor(*explained, "transformer.embeding.weight");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("did you mean transformer.embedding.weight?"));
}

TEST(Explain, WhyAsksForAnotherDecision) {
  Graph graph = makeChain({4});
  Plan plan = planFor(graph, 8, "");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  for (const char *condition : {"tp=2", "pp=4", "micro-batch=1", "recompute=full", "tp=2,pp=2"}) {
    Result<Report> report = explainWhy(*explained, condition);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(factOf(*report, "possible"), "yes") << condition << factOf(*report, "reason");
    Pins pins;
    pins.conditions = *parseConditions(condition);
    Result<SearchAnswer> answer = search(graph, plan.job, plan.cluster, pins);
    ASSERT_TRUE(answer);
    for (const Condition &c : pins.conditions)
      EXPECT_TRUE(c.isIn(answer->plan)) << condition;
    // The free plan is at least as fast.
    EXPECT_GE(answer->plan.prediction.stepSeconds * 1.001, plan.prediction.stepSeconds);
  }
  // An impossible choice has an answer too.
  Result<Report> never = explainWhy(*explained, "tp=7,dp=2");
  ASSERT_TRUE(never) << never.error().message;
  EXPECT_EQ(factOf(*never, "possible"), "no");
  EXPECT_NE(factOf(*never, "reason"), "");
}

TEST(Explain, WhySaysHowMuchLongerAStepTakes) {
  Graph graph = makeChain({4});
  Plan plan = planFor(graph, 8, "");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  Result<Report> slower = explainWhy(*explained, "recompute=full");
  ASSERT_TRUE(slower) << slower.error().message;
  EXPECT_THAT(factOf(*slower, "verdict"),
              testing::ContainsRegex("a step takes [0-9]+\\.[0-9] % longer"));
  explained->prediction.stepSeconds *= 1e3;
  Result<Report> faster = explainWhy(*explained, "recompute=full");
  ASSERT_TRUE(faster) << faster.error().message;
  EXPECT_THAT(factOf(*faster, "verdict"), testing::ContainsRegex("takes 9[0-9]\\.[0-9] % less"));
}

TEST(Explain, APinnedMeshLeavesShardingOverDpOpen) {
  Graph graph = makeChain({4});
  auto reasonFor = [](const Plan &plan) {
    for (const Reason &reason : plan.reasons)
      if (reason.decision == "zero")
        return reason;
    return Reason();
  };
  const Reason open = reasonFor(planFor(graph, 8, "pp=2,dp=4", "1f1b"));
  EXPECT_EQ(open.origin, Origin::Solved);
  EXPECT_THAT(open.text, testing::Not(HasSubstr("pinned")));
  const Reason forced = reasonFor(planFor(graph, 8, "fsdp=8"));
  EXPECT_EQ(forced.origin, Origin::Pinned);
  EXPECT_THAT(forced.text, HasSubstr("axis fsdp of --mesh"));
}

TEST(Explain, WhyOfWhatIsThereTakesItAway) {
  Graph graph = makeChain({4});
  Plan plan = planFor(graph, 8, "");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  std::string has = "recompute=" + toString(plan.recompute);
  Result<Report> report = explainWhy(*explained, has);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(factOf(*report, "question"), HasSubstr("without " + has));
  EXPECT_EQ(factOf(*report, "other").find("recompute " + toString(plan.recompute)),
            std::string::npos);
}

/// A pinned recompute mode is that of the flag: for all blocks, and for any mesh.
TEST(Explain, PinsOfRecomputeAreItsFlag) {
  Graph graph = makeChain({4});
  const Plan plan = planFor(graph, 8, "");
  for (const char *mode : {"full", "selective", "none"}) {
    Pins pinned, flagged;
    pinned.conditions = *parseConditions(std::string("recompute=") + mode);
    flagged.recompute = mode;
    Result<SearchAnswer> byPin = search(graph, plan.job, plan.cluster, pinned),
                         byFlag = search(graph, plan.job, plan.cluster, flagged);
    ASSERT_TRUE(byPin && byFlag) << mode;
    EXPECT_EQ(byPin->plan.prediction.stepSeconds, byFlag->plan.prediction.stepSeconds) << mode;
    EXPECT_EQ(byPin->plan.mesh.axes(), byFlag->plan.mesh.axes()) << mode;
  }
}

TEST(Explain, WhyKeepsWhatWasPinned) {
  Graph graph = makeChain({4});
  Plan plan = planFor(graph, 8, "pp=2,dp=4", "1f1b");
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, plan);
  ASSERT_TRUE(explained);
  Result<Report> report = explainWhy(*explained, "recompute=full");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(factOf(*report, "other"), HasSubstr("pp=2 dp=4, DDP"));
  EXPECT_THAT(factOf(*report, "other"), HasSubstr("1f1b"));
  // Another axis is another mesh.
  report = explainWhy(*explained, "pp=4");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(factOf(*report, "other"), HasSubstr("pp=4"));
}

TEST(Explain, ConditionsThatAreNoneAreErrors) {
  for (auto [text, message] : {std::pair("fsp=8", "did you mean fsdp?"),
                               {"tp", "expected DECISION=VALUE"},
                               {"tp=x", "is a number"},
                               {"tp=0", "is a number"},
                               {"recompute=ful", "did you mean full?"},
                               {"zero=4", "is one of"},
                               {"tp=2,tp=4", "twice"},
                               {"", "expected DECISION=VALUE"}}) {
    Result<std::vector<Condition>> conditions = parseConditions(text);
    ASSERT_FALSE(conditions) << text;
    EXPECT_EQ(conditions.error().code, ErrorCode::Usage);
    EXPECT_THAT(conditions.error().message, HasSubstr(message));
  }
}

static std::set<std::string> differing(const Plan &a, const Plan &b) {
  Report report = explainDifferences(a, b);
  std::set<std::string> names;
  for (const auto &row : report.tables.front().rows)
    names.insert(row[0].text + " " + row[1].text);
  return names;
}

TEST(Explain, EveryDecisionHasADifference) {
  Graph graph = makeChain({4});
  Plan plan = planFor(graph, 8, "pp=2,fsdp=2,tp=2", "1f1b");
  EXPECT_TRUE(differing(plan, plan).empty());
  auto edited = [&](auto edit) {
    Plan other = plan;
    edit(other);
    return differing(plan, other);
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(edited([](Plan &p) { p.mesh.tp = 4; }), Names{"decided mesh"});
  EXPECT_EQ(edited([](Plan &p) { p.microBatch *= 2; }), Names{"decided micro-batch"});
  EXPECT_EQ(edited([](Plan &p) { p.accumulation *= 2; }), Names{"decided accumulation"});
  EXPECT_EQ(edited([](Plan &p) { p.parameterDefault.keepGathered ^= true; }),
            Names{"decided parameters"});
  EXPECT_EQ(edited([](Plan &p) { p.schedule = ScheduleKind::GPipe; }), Names{"decided schedule"});
  EXPECT_EQ(edited([](Plan &p) { p.stages.back() += "x"; }), Names{"decided stages"});
  EXPECT_EQ(edited([](Plan &p) { p.recompute = {RecomputeMode::Full}; }),
            Names{"decided recompute"});
  EXPECT_EQ(edited([](Plan &p) { p.recomputeOps = {"h.0.up"}; }).size(), 1u);
  EXPECT_EQ(edited([](Plan &p) { p.ops.pop_back(); }).size(), 1u);
  EXPECT_EQ(edited([](Plan &p) { p.parameterOverrides = {{{}, {"w"}}}; }).size(), 1u);
  EXPECT_EQ(edited([](Plan &p) { p.job.globalBatch = 64; }), Names{"asked batch"});
  EXPECT_EQ(edited([](Plan &p) { p.job.settings["clip_norm"] = 1; }), Names{"asked clip_norm"});
  EXPECT_EQ(edited([](Plan &p) { p.job.modelHash = "0" + p.job.modelHash; }), Names{"asked model"});
  EXPECT_EQ(edited([](Plan &p) { p.cluster.memoryBytes /= 2; }), Names{"asked cluster"});
  EXPECT_EQ(edited([](Plan &p) { p.prediction.stepSeconds *= 2; }), Names{"predicted step"});
}

TEST(Report, IsTextAndJson) {
  Report report;
  report.facts = {{"limit_bytes", "limit", Cell::bytes(1536)}};
  report.tables = {{"rows",
                    "title",
                    {{"name", "name"}, {"seconds", "time"}},
                    {{Cell::of("a\"b"), Cell::seconds(0.0123)}, {Cell::of("c"), Cell::seconds(2)}},
                    "note"}};
  EXPECT_EQ(toText(report), "limit: 1.50 KiB\n\ntitle\n  name    time\n  a\"b  12.3 ms\n  c     "
                            "2.00 s\n  note\n");
  std::string json = toJson(report, "test");
  for (const char *part :
       {"\"about\": \"test\"", "\"limit_bytes\": 1536", "\"a\\\"b\"", "\"seconds\": 0.0123"})
    EXPECT_THAT(json, HasSubstr(part));
}

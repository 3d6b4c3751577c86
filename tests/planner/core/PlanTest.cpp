//===- PlanTest.cpp - plan.json: round trip and hostile input --------------===//

#include "planner/layout/LayoutOf.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanDevices.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/report/LowMfu.h"
#include "planner/report/Summary.h"
#include "planner/search/Search.h"
#include "planner/support/Format.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

static Job chainJob(int64_t gpus) {
  Job job;
  job.modelPath = "../model.onnx";
  job.modelHash = "sha256:abc";
  job.paddedVocabularies = {{50257, 50304}};
  job.bindings = {{"batch", 1}, {"sequence", 16}};
  job.gpus = gpus;
  job.globalBatch = 32;
  job.sequence = 16;
  return job;
}

static Plan planFor(const Graph &graph, int64_t gpus, const std::string &mesh) {
  Pins pins;
  pins.mesh = *parseMesh(mesh);
  pins.recompute = "selective";
  if (mesh.find("pp") != std::string::npos)
    pins.schedule = "1f1b";
  Result<SearchAnswer> answer = search(graph, chainJob(gpus), *loadCluster("h100-sxm"), pins);
  EXPECT_TRUE(answer) << answer.error().message;
  return answer->plan;
}

static std::string errorOf(const std::string &text) {
  Result<Plan> plan = readPlan(text, "plan.json");
  if (plan)
    return "no error";
  EXPECT_EQ(plan.error().code, ErrorCode::Usage);
  return plan.error().message;
}

static std::string replaced(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Plan, RoundTripIsByteIdentical) {
  Graph graph = makeChain({4});
  for (const char *mesh : {"dp=2,fsdp=2,tp=2", "pp=2,tp=4", "fsdp=8", "pp=4,dp=2"}) {
    Plan plan = planFor(graph, 8, mesh);
    std::string text = writePlan(plan);
    Result<Plan> read = readPlan(text, "plan.json");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(writePlan(*read), text);
    // The plan as read has the prediction of the plan as written.
    Result<Prediction> again = predict(graph, *read);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->stepSeconds, plan.prediction.stepSeconds);
    EXPECT_EQ(again->peakBytes, plan.prediction.peakBytes);
  }
}

TEST(Plan, HasTheKeysThatOthersRelyOn) {
  std::string text = writePlan(planFor(makeChain({2}), 4, "dp=2,tp=2"));
  for (const char *key : {"\"step_seconds\":", "\"peak_bytes\":", "\"fits\": true", "\"mesh\": {",
                          "\"format\": \"tbc-plan\"", "\"version\": 6"})
    EXPECT_THAT(text, HasSubstr(key));
}

TEST(Plan, ErrorsNameTheKey) {
  std::string good = writePlan(planFor(makeChain({2}), 4, "pp=2,tp=2"));
  ASSERT_EQ(errorOf(good), "no error");
  EXPECT_THAT(errorOf(replaced(good, "\"version\": 6", "\"version\": 1")),
              HasSubstr("key \"version\" is 1"));
  EXPECT_THAT(errorOf(replaced(good, "\"tbc-plan\"", "\"other\"")), HasSubstr("\"format\""));
  // An added key is unknown, and the error suggests a similar key. A misspelt key is a missing one.
  EXPECT_THAT(errorOf(replaced(good, "\"fits\":", "\"fts\": 1,\n\"fits\":")),
              HasSubstr("key \"fts\" is unknown; did you mean \"fits\"?"));
  EXPECT_THAT(errorOf(replaced(good, "\"idle_devices\"", "\"idel_devices\"")),
              HasSubstr("key \"idle_devices\" is missing"));
  EXPECT_THAT(errorOf(replaced(good, "\"launch_seconds\"", "\"lunch_seconds\"")),
              HasSubstr("cluster.launch_seconds\" is missing"));
  EXPECT_THAT(errorOf(replaced(good, "\"precision\": \"bf16\"", "\"precision\": \"f8\"")),
              HasSubstr("job.precision"));
  EXPECT_THAT(errorOf(replaced(good, "\"causal_attention\": {", "\"casual_attention\": {")),
              HasSubstr("is no kernel class; did you mean causal_attention?"));
  EXPECT_THAT(errorOf(replaced(good, "\"50257\": 50304", "\"50257\": 50257")),
              HasSubstr("model.padded_vocabularies.50257\" must be between 50258 and "));
  EXPECT_THAT(errorOf(replaced(good, "\"50257\": 50304", "\"many\": 50304")),
              HasSubstr("model.padded_vocabularies.many\" must have a size as its name"));
  EXPECT_THAT(errorOf(replaced(good, "\"gpus\": 4", "\"gpus\": 5")), HasSubstr("job.gpus is 5"));
  EXPECT_THAT(errorOf(replaced(good, "\"batch\": 32", "\"batch\": 33")),
              AllOf(HasSubstr("job.batch\" is 33, but micro_batch "),
                    HasSubstr(" data ranks (dp x fsdp x ep) is 32; change one of them")));
  EXPECT_THAT(errorOf(replaced(good, "\"schedule\": \"1f1b\"", "\"schedule\": \"none\"")),
              HasSubstr("schedule"));
  EXPECT_THAT(errorOf(replaced(good, "\"pp\": 2", "\"pp\": -2")), HasSubstr("mesh.pp"));
  EXPECT_THAT(errorOf(replaced(good, "\"pp\": 2", "\"pp\": 99999999999999999999")),
              HasSubstr("mesh.pp"));
  EXPECT_THAT(errorOf(replaced(good, "\"step_seconds\": ", "\"step_seconds\": -")),
              HasSubstr("step_seconds"));
}

TEST(Plan, PredictionsThatContradictEachOtherAreRefused) {
  const Plan good = planFor(makeChain({2}), 4, "pp=2,tp=2");
  auto edited = [&](auto edit) {
    Plan plan = good;
    edit(plan);
    return errorOf(writePlan(plan));
  };
  EXPECT_THAT(edited([](Plan &p) { p.prediction.peakBytes = 1; }),
              AllOf(HasSubstr("key \"peak_bytes\" is 1, outside of its interval of "),
                    HasSubstr("prediction.low_bytes"), HasSubstr("plan again")));
  EXPECT_THAT(edited([](Plan &p) { p.prediction.stepSeconds /= 2; }),
              HasSubstr("key \"step_seconds\" is "));
  EXPECT_THAT(edited([](Plan &p) { p.prediction.stepSeconds *= 1.001; }),
              HasSubstr("the parts in prediction.time add up to "));
  EXPECT_THAT(edited([](Plan &p) { p.prediction.peakBytes += 1; }),
              HasSubstr("no stage's lines in prediction.stages add up to that"));
  EXPECT_THAT(edited([](Plan &p) { p.lowerBoundSeconds = 2 * p.prediction.stepSeconds; }),
              HasSubstr("key \"lower_bound_seconds\" is "));
}

TEST(Plan, ALimitOfMemoryBelongsToItsPredictions) {
  const Plan good = planFor(makeChain({2}), 4, "pp=2,tp=2");
  ASSERT_EQ(whyStale(good), "");
  Plan limited = good;
  limited.memoryLimitBytes = int64_t(1) << 30;
  EXPECT_THAT(whyStale(limited),
              AllOf(HasSubstr("key \"prediction.limit_bytes\" is "),
                    HasSubstr("memory_limit_bytes (1073741824) and the cluster give 1073741824"),
                    HasSubstr("--derive")));
  Plan tight = good;
  tight.prediction.memory = MemoryVerdict::Tight;
  EXPECT_THAT(whyStale(tight), HasSubstr("key \"memory\" is \"tight\""));
  // A limit above the memory of the devices changes nothing.
  limited.memoryLimitBytes = int64_t(1) << 50;
  EXPECT_EQ(whyStale(limited), "");
}

TEST(Plan, ChunksHaveTheSecondsOfThePrediction) {
  Graph graph = makeChain({8, 4, 256, 8, 64, 2048, 1024}); // matmuls take most of the time
  const Plan plan = planFor(graph, 8, "pp=4,fsdp=2");
  const std::vector<ChunkSeconds> &chunks = plan.prediction.chunks;
  ASSERT_EQ(chunks.size(), 4u);
  Result<Plan> read = readPlan(writePlan(plan), "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->prediction.chunks, chunks);
  const StageDevices devices = stageDevices(*read);
  const PipelineSchedule schedule = scheduleOf(*read);
  std::vector<StageSeconds> seconds;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    seconds.push_back(read->prediction.chunks[chunk].seconds);
    EXPECT_EQ(expose(devices.of(int(chunk)), seconds[chunk], schedule).microBatch(),
              plan.prediction.stageSeconds[chunk]);
    EXPECT_FALSE(chunks[chunk].of(&StageSeconds::forward).empty());
    const std::vector<WorkSum> &kernels = chunks[chunk].of(&StageSeconds::forward);
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(),
                            [](const WorkSum &work) { return work.name == "matmul"; }));
  }
  EXPECT_EQ(chunks[0].of(&StageSeconds::sendForward).size(), 1u);
  EXPECT_EQ(chunks[3].of(&StageSeconds::sendForward).size(), 0u);
  // A reader without the model gets the step time to the last bit.
  EXPECT_EQ(simulatedStepTime(devices, seconds, schedule).seconds, plan.prediction.stepSeconds);
}

TEST(Plan, ChunksOfEditedPlansAreRefused) {
  const Plan good = planFor(makeChain({2}), 4, "pp=2,tp=2");
  auto edited = [&](auto edit) {
    Plan plan = good;
    edit(plan.prediction.chunks);
    return errorOf(writePlan(plan));
  };
  using Chunks = std::vector<ChunkSeconds>;
  EXPECT_EQ(edited([](Chunks &) {}), "no error");
  EXPECT_EQ(edited([](Chunks &chunks) { chunks.clear(); }), "no error"); // of earlier builds
  EXPECT_THAT(edited([](Chunks &chunks) { chunks[1].seconds.backward *= 1.1; }),
              AllOf(HasSubstr("part \"backward\" of chunk 1 has "), HasSubstr("adds up to ")));
  EXPECT_THAT(edited([](Chunks &chunks) { chunks[0].work.erase("forward"); }),
              HasSubstr("part \"forward\" of chunk 0"));
  EXPECT_THAT(edited([](Chunks &chunks) { chunks.pop_back(); }),
              HasSubstr("prediction.chunks\" has 1 of 2 chunks"));
  EXPECT_THAT(edited([](Chunks &chunks) { chunks.push_back(chunks[0]); }),
              HasSubstr("must be the number of a chunk"));
}

TEST(Plan, EveryPredictionIsDerivedAgain) {
  Graph graph = makeChain({2});
  const Plan good = planFor(graph, 4, "pp=2,tp=2");
  Result<Prediction> derived = predict(graph, good);
  ASSERT_TRUE(derived) << derived.error().message;
  Result<Layout> layout = layoutOf(graph, good);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(whyNotDerived(good, *derived, *layout), "");
  auto edited = [&](auto edit) {
    Plan plan = good;
    edit(plan.prediction);
    return whyNotDerived(plan, *derived, *layout);
  };
  EXPECT_THAT(edited([](Prediction &p) { p.peakBytes = 1; }),
              AllOf(HasSubstr("key \"peak_bytes\" is 1, but the plan's decisions give "),
                    HasSubstr(std::to_string(good.prediction.peakBytes))));
  EXPECT_THAT(edited([](Prediction &p) { p.memory = MemoryVerdict::DoesNotFit; }),
              HasSubstr("key \"fits\" is false, but the plan's decisions give true"));
  EXPECT_THAT(edited([](Prediction &p) { p.memory = MemoryVerdict::Tight; }),
              HasSubstr("key \"memory\" is \"tight\", but the plan's decisions give \"fits\""));
  EXPECT_THAT(edited([](Prediction &p) { p.stages[1].lines[0].bytes += 1; }),
              HasSubstr("key \"prediction.stages[1].memory[0].bytes\" is "));
  EXPECT_THAT(edited([](Prediction &p) { p.collectives.pop_back(); }),
              HasSubstr("key \"prediction.collectives\" is "));
  EXPECT_THAT(edited([](Prediction &p) { p.mfu *= 1.01; }), HasSubstr("prediction.mfu"));
  EXPECT_THAT(edited([](Prediction &p) { p.chunks[0].seconds.forward *= 1.01; }),
              HasSubstr("key \"prediction.chunks[0].parts.forward.seconds\" is "));
  EXPECT_EQ(edited([](Prediction &p) { p.chunks.clear(); }), "");
  EXPECT_EQ(edited([](Prediction &p) { p.mfu *= 1 + 1e-12; }), "");
}

TEST(Plan, PlacementsOfChunksAreChecked) {
  Graph graph = makeChain({4, 8});
  Pins pins;
  pins.mesh = *parseMesh("pp=2,dp=2");
  pins.schedule = "interleaved";
  pins.virtualStages = 2;
  pins.microBatch = 1;
  Result<SearchAnswer> answer = search(graph, chainJob(4), *loadCluster("h100-sxm"), pins);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.chunkStage, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(answer->plan.stages.size(), 4u);
  EXPECT_EQ(scheduleText(answer->plan), "interleaved x2");
  const std::string good = writePlan(answer->plan);
  Result<Plan> read = readPlan(good, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writePlan(*read), good);
  const std::string list = "\n \"placement\": [0, 1, 0, 1]";
  auto edited = [&](const std::string &other) {
    return errorOf(replaced(good, list, "\n \"placement\": " + other));
  };
  EXPECT_EQ(edited("[0, 1, 1, 0]"), "no error");
  EXPECT_THAT(edited("[0, 1, 0]"), HasSubstr("must have one entry per chunk"));
  EXPECT_THAT(edited("[0, 1, 2, 0]"), HasSubstr("a chunk lies on stage 2 of 2"));
  EXPECT_THAT(edited("[0, 0, 0, 0]"), HasSubstr("stage 1 has no chunk"));
  EXPECT_THAT(edited("[0, 1, -1, 0]"), HasSubstr("must be the number of a stage"));
  EXPECT_THAT(edited("7"), HasSubstr("placement"));
  EXPECT_THAT(
      errorOf(replaced(good, "\n \"schedule\": \"interleaved\"", "\n \"schedule\": \"1f1b\"")),
      HasSubstr("takes one chunk per stage"));
}

TEST(Plan, TruncatedTextIsRefused) {
  std::string good = writePlan(planFor(makeChain({2}), 4, "fsdp=4"));
  for (size_t length = 0; length + 2 < good.size(); length += 13)
    EXPECT_NE(errorOf(good.substr(0, length)), "no error") << length;
  for (const char *text : {"", "null", "[]", "{}", "3", "{\"format\":\"tbc-plan\"}", "\xff"})
    EXPECT_NE(errorOf(text), "no error") << text;
  EXPECT_NE(errorOf(std::string(200000, '[')), "no error");
}

TEST(Plan, RandomEditsNeverCrash) {
  Graph graph = makeChain({2});
  std::string good = writePlan(planFor(graph, 4, "dp=2,tp=2"));
  std::mt19937_64 random(7);
  const std::string letters = "0123456789-.{}[],:\"abdehnpt ";
  int readable = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (size_t edit = 0; edit < 1 + random() % 2; ++edit) {
      size_t at = random() % text.size();
      text[at] = letters[random() % letters.size()];
    }
    Result<Plan> plan = readPlan(text, "plan.json");
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::Usage);
      continue;
    }
    ++readable;
    Result<PlannedStep> step = applyPlan(graph, *plan);
    if (!step)
      EXPECT_EQ(step.error().code, ErrorCode::Usage) << step.error().message;
  }
  EXPECT_GT(readable, 100);
}

TEST(Plan, DoesNotApplyToAnotherModel) {
  Plan plan = planFor(makeChain({4}), 4, "pp=2,tp=2");
  Result<PlannedStep> step = applyPlan(makeMlp(4, {8, 8, 8}), plan);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::Usage);
  EXPECT_THAT(step.error().message, HasSubstr("the model has no op"));
}

TEST(Plan, HandEditsAreChecked) {
  Graph graph = makeChain({2});
  Plan plan = planFor(graph, 4, "dp=2,tp=2");
  auto errorOfEdit = [&](auto edit) {
    Plan edited = plan;
    edit(edited);
    Result<PlannedStep> step = applyPlan(graph, edited);
    return step ? std::string("no error") : step.error().message;
  };
  EXPECT_EQ(errorOfEdit([](Plan &) {}), "no error");
  // h.0.up is a matmul of [batch, sequence, in] and [in, out].
  const DimAxes whole, tensor{{"tp"}, {}, 1};
  const OpPlacement column{
      {{whole, whole, whole}, {whole, tensor}}, {{whole, whole, tensor}}, {{}}, false};
  auto errorOfSplit = [&](auto edit, const char *op = "h.0.up") {
    OpPlacement placement = column;
    edit(placement);
    return errorOfEdit([&](Plan &p) { p.ops = {{placement, {op}}}; });
  };
  EXPECT_EQ(errorOfSplit([](OpPlacement &) {}), "no error");
  EXPECT_THAT(errorOfSplit([](OpPlacement &) {}, "h.0.upp"), HasSubstr("did you mean \"h.0.up\"?"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.operands.pop_back(); }),
              HasSubstr("op \"h.0.up\": has 2 operands, and not 1"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.results[0].pop_back(); }),
              HasSubstr("results[0] has 3 dims, and not 2"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.operands[1][1].axes = {"pp"}; }),
              HasSubstr("\"pp\" is not an axis"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.results[0][2].axes = {}; }),
              HasSubstr("the same dim in another operand or result is not"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.results[0][2].axes = {"dp"}; }),
              HasSubstr("results[0][2] is split over other axes"));
  EXPECT_THAT(
      errorOfSplit([](OpPlacement &o) { o.operands[0][0].axes = o.results[0][0].axes = {"tp"}; }),
      HasSubstr("twice"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) { o.partial = {{"tp"}}; }),
              HasSubstr("results[0] is complete"));
  EXPECT_THAT(errorOfSplit([](OpPlacement &o) {
                o.operands[1][1] = o.results[0][2] = {{}, {{"tp"}, {}}, 1};
              }),
              HasSubstr("is 1 segments of 1 factors, and not 1 of 2"));
  // Split by the summed dim, every rank has a partial sum.
  auto row = [](OpPlacement &o, const char *axis) {
    o.operands[1][1].axes = o.results[0][2].axes = {};
    o.operands[0][2].axes = o.operands[1][0].axes = {axis};
  };
  EXPECT_THAT(errorOfSplit([&](OpPlacement &o) { row(o, "tp"); }),
              HasSubstr("results[0] is partial over tp; write that in \"partial\""));
  EXPECT_EQ(errorOfSplit([&](OpPlacement &o) {
              row(o, "tp");
              o.partial = {{"tp"}};
            }),
            "no error");
  EXPECT_THAT(errorOfEdit([](Plan &p) { p.recomputeOps = {"h.0.up.bwd.dx"}; }),
              HasSubstr("not a forward op"));
  EXPECT_THAT(errorOfEdit([](Plan &p) { p.parameterOverrides = {{{}, {"nope"}}}; }),
              HasSubstr("no parameter \"nope\""));
}

TEST(Summary, StaysUnderSixtyLines) {
  Graph graph = makeChain({12});
  for (const char *mesh : {"dp=2,fsdp=2,tp=2,pp=2", "pp=16", "tp=4,pp=4", "fsdp=16"}) {
    std::string text = summarize(planFor(graph, 16, mesh));
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
    EXPECT_THAT(text, HasSubstr("fits: "));
    EXPECT_THAT(text, HasSubstr("h.*.ln1"));
    EXPECT_THAT(text, HasSubstr("bound by "));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

TEST(Summary, BeginsWithTheVerdictOnMemoryAndWarnings) {
  Plan plan = planFor(makeChain({4}), 4, "fsdp=4");
  constexpr int64_t mebibyte = 1 << 20;
  plan.prediction.peakBytes = 950 * mebibyte;
  plan.prediction.limitBytes = 1000 * mebibyte;
  plan.prediction.lowBytes = 900 * mebibyte;
  plan.prediction.highBytes = 1000 * mebibyte;
  EXPECT_THAT(summarize(plan), StartsWith("fits: 950 MiB (900 MiB to 0.98 GiB) of 0.98 GiB"));
  plan.prediction.memory = MemoryVerdict::Tight;
  plan.warnings = {"the first", std::string(60, 'a') + " " + std::string(60, 'b')};
  std::string text = summarize(plan);
  EXPECT_THAT(text, StartsWith("tight: 950 MiB"));
  // Long lists continue in the next line.
  EXPECT_THAT(text, HasSubstr("\nthe first\n" + std::string(60, 'a') + "\n  " +
                              std::string(60, 'b') + "\n\nplan: "));
  plan.prediction.memory = MemoryVerdict::DoesNotFit;
  EXPECT_THAT(summarize(plan), StartsWith("DOES NOT FIT: 950 MiB"));
}

TEST(Summary, NamesTheContextOfARunnerUp) {
  Plan plan = planFor(makeChain({4}), 4, "fsdp=4");
  Alternative other;
  other.mesh.cp = 2;
  other.context = reshard::ContextForm::AllToAll;
  plan.alternatives = {other};
  EXPECT_THAT(summarize(plan), HasSubstr("cp=2, all-to-all"));
}

TEST(Summary, FormatsUnits) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1536), "1.50 KiB");
  EXPECT_EQ(formatBytes(40.0 * (1 << 30)), "40.0 GiB");
  EXPECT_EQ(formatBytes(-222.51 * (1 << 20)), "-223 MiB"); // as many digits as its magnitude
  EXPECT_EQ(formatBytes(-2.625 * (1 << 20)), "-2.62 MiB");
  EXPECT_EQ(formatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(formatSeconds(1.2), "1.20 s");
  EXPECT_EQ(formatSeconds(5e-6), "5.0 us");
}

/// The corpus of the fuzzer; it would refuse plans of an older form at once.
TEST(Plan, KeptPlansAreReadable) {
  int count = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(TBC_SOURCE_DIR "/tests/fuzz/corpus/plan")) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    Result<Plan> plan = readPlan(text, entry.path().filename());
    EXPECT_TRUE(plan) << plan.error().message;
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(LowMfu, SaysTheLargestPartAndTheClassOfKernels) {
  Plan plan;
  plan.job.modelPath = "m.onnx";
  Prediction &p = plan.prediction;
  p.mfu = 0.012, p.stepSeconds = 10;
  p.time.compute = 9, p.time.data = 1;
  ChunkSeconds chunk;
  chunk.add(&StageSeconds::forward, "elementwise", "", 0, 3);
  chunk.add(&StageSeconds::backward, "matmul", "", 0, 1);
  p.chunks = {chunk};
  EXPECT_EQ(lowMfuWarning(plan),
            "MFU 1.2 %: 90 % of the step is kernels, 75 % of their time in kernels of class "
            "elementwise; tbc check m.onnx says which attention or experts were not recognised");
  p.time.data = 18, p.stepSeconds = 27;
  EXPECT_EQ(lowMfuWarning(plan),
            "MFU 1.2 %: 67 % of the step is data communication; fewer devices, a larger batch or "
            "other pins may use them better");
  p.mfu = 0.06;
  EXPECT_EQ(lowMfuWarning(plan), "");
  p.mfu = 0.012, p.stepSeconds = 0.08; // 0.96 ms of the model's FLOPs
  EXPECT_EQ(lowMfuWarning(plan), "");
}

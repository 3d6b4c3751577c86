//===- ExecutorTest.cpp - Plans for the programs of others -----------------===//

#include "planner/cost/Cost.h"
#include "planner/pins/Conditions.h"
#include "planner/pins/Runnable.h"
#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanFile.h"
#include "planner/plan/PlanNames.h"
#include "planner/search/LayerBegins.h"
#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

static int64_t bytesOf(const Plan &plan, const std::string &line) {
  for (const MemoryLine &one : plan.prediction.stages[0].lines)
    if (one.name == line)
      return one.bytes;
  return -1;
}

// An executor's gathers and buffers are in the answer, in its bound, and in plan.json.
TEST(ExecutorPlans, PlansForItsExecutor) {
  const Graph graph = makeMlp(1, std::vector<int64_t>(17, 8192), 2);
  const Cluster cluster = *loadCluster("h100-sxm");
  auto plan = [&](const char *executor, const char *mesh, const char *recompute) {
    Job job = jobFor(256, 256 * 512);
    job.precision = Precision::BF16;
    Pins pins;
    pins.mesh = *parseMesh(mesh);
    pins.recompute = recompute;
    pins.microBatch = 512;
    Result<SearchAnswer> answer = search(graph, job, *runBy(cluster, executor), pins);
    EXPECT_TRUE(answer) << executor << ": " << (answer ? "" : answer.error().message);
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds * (1 + 1e-9));
    return answer->plan;
  };
  const Plan own = plan("tbc", "fsdp=256", "none"), joined = plan("torchtitan", "fsdp=256", "none"),
             exposed = plan("deepspeed", "fsdp=256", "none");
  EXPECT_LT(joined.prediction.stepSeconds, own.prediction.stepSeconds);
  EXPECT_LT(own.prediction.stepSeconds, exposed.prediction.stepSeconds);
  EXPECT_EQ(exposed.prediction.time.hiddenData, 0);
  for (const Plan *listed : {&joined, &exposed}) {
    double seconds = 0;
    for (const CollectiveLine &line : listed->prediction.collectives)
      seconds += double(line.count.count) * line.seconds;
    const TimeSplit &time = listed->prediction.time;
    EXPECT_NEAR(seconds, time.data + time.hiddenData, 1e-3 * seconds)
        << listed->cluster.executor.name << ": the list has the times of joined gathers";
  }
  const Plan kept = plan("nanotron", "dp=256", "none"), mine = plan("tbc", "dp=256", "none");
  EXPECT_GT(kept.prediction.peakBytes, mine.prediction.peakBytes);
  EXPECT_GT(plan("megatron", "dp=256", "full").prediction.time.recompute, 0);
  const Plan split = plan("nemo", "dp=128,tp=2", "none"),
             whole = plan("megatron", "dp=128,tp=2", "none");
  EXPECT_LT(split.prediction.time.operands, whole.prediction.time.operands) << "TP overlaps";
  EXPECT_LT(bytesOf(split, "gradients"), bytesOf(whole, "gradients"));

  EXPECT_LT(bytesOf(joined, "parameters"), 1) << "FSDP stores f32 shards alone";
  EXPECT_GT(bytesOf(own, "parameters"), 1e6);

  const std::string text = writePlan(kept);
  const Plan back = *readPlan(text, "plan.json");
  EXPECT_EQ(back.cluster.executor, kept.cluster.executor);
  EXPECT_EQ(writePlan(back), text);
}

// Words in files of executors are words of pins.
TEST(ExecutorPlans, RunnablePlansAreNamedByWordsOfPins) {
  const Cluster cluster = *loadCluster("h100-sxm");
  const std::vector<std::string> &schedules = schedule::scheduleNames();
  const std::vector<std::string> contexts = contextWords();
  auto areAmong = [](const std::vector<std::string> &words, const std::vector<std::string> &known) {
    return std::all_of(words.begin(), words.end(), [&](const std::string &word) {
      return std::find(known.begin(), known.end(), word) != known.end();
    });
  };
  for (const std::string &name : executorNames()) {
    const RunnablePlans plans = runBy(cluster, name)->executor.plans;
    EXPECT_TRUE(areAmong(plans.axes, mesh::axisNames())) << name;
    EXPECT_TRUE(areAmong(plans.zero, {"0", "1", "2", "3", "shard-grad-op"})) << name;
    EXPECT_TRUE(areAmong(plans.schedules, schedules)) << name;
    EXPECT_TRUE(areAmong(plans.contexts, contexts)) << name;
    if (!plans.zero.empty())
      EXPECT_EQ(plans.zero.front(), "0") << name << ": one device has no other";
  }
}

// Open decisions keep to the plans of the executor; pinned ones hold, and are named.
TEST(ExecutorPlans, AreThoseThatItRuns) {
  const Graph graph = makeMlp(1, std::vector<int64_t>(5, 4096), 2);
  const Cluster cluster = *loadCluster("h100-sxm");
  auto plan = [&](const char *executor, const char *mesh, const Pins &more) {
    Pins pins = more;
    if (*mesh)
      pins.mesh = *parseMesh(mesh);
    Result<SearchAnswer> answer = search(graph, jobFor(8, 64), *runBy(cluster, executor), pins);
    EXPECT_TRUE(answer) << executor << ": " << (answer ? "" : answer.error().message);
    return answer->plan;
  };
  for (const std::string &executor : executorNames()) {
    const Plan open = plan(executor.c_str(), "", {});
    EXPECT_EQ(notRunnable(open), std::vector<std::string>()) << executor;
    for (const Alternative &other : open.alternatives)
      for (const auto &[axis, size] : other.mesh.axes())
        EXPECT_TRUE(size == 1 || RunnablePlans::has(open.cluster.executor.plans.axes, axis))
            << executor << " " << axis;
  }
  Pins vee;
  vee.schedule = "zero-bubble";
  const Plan pinned = plan("megatron", "pp=2,fsdp=4", vee);
  EXPECT_EQ(notRunnable(pinned),
            (std::vector<std::string>{"fsdp=4", "ZeRO-3", "schedule zero-bubble"}));
  EXPECT_NE(writePlan(pinned).find("pinned, but megatron has no such plans"), std::string::npos);
  Pins turned;
  turned.schedule = "interleaved";
  turned.placement = "v";
  EXPECT_EQ(notRunnable(plan("megatron", "pp=2,dp=4", turned)),
            std::vector<std::string>{"placement v"});
  const Plan piped = plan("megatron", "pp=2,dp=4", {});
  EXPECT_TRUE(RunnablePlans::has({"1f1b", "interleaved"}, scheduleWord(piped.schedule)));
  EXPECT_LE(piped.parameterDefault.zero, 1);
}

/// A chain of 6 heads with tokens as its sequence. Parameters have their ids as names.
struct SixHeads {
  Graph graph;
  Job job = jobFor(4, 16);

  explicit SixHeads(int64_t tokens = 16) : graph(makeChain({2, 1, tokens, 6, 8, 96, 96})) {
    graph.sequenceFactor =
        graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  }
  void name(const std::string &parameter, const std::string &as) {
    auto names = std::make_shared<ModelNames>();
    for (const reshard::GraphParameter &each : graph.parameters) {
      const std::string &id = graph.values[size_t(each.value)].name;
      names->parameters[id] = id == parameter ? as : id;
    }
    job.names = names;
  }
  Result<SearchAnswer> plan(const char *executor, const Pins &pins) const {
    return search(graph, job, *runBy(*loadCluster("h100-sxm"), executor), pins);
  }
};

/// Pins without axes beside tp.
static Pins onlyTensorAxis() {
  Pins pins;
  for (const char *axis : {"pp", "dp", "fsdp", "cp"})
    pins.conditions.push_back({axis, "1"});
  return pins;
}

// Megatron splits whole heads, vocabularies and tokens: a search takes no other tp, and a pinned
// one is an error.
TEST(ExecutorPlans, DivideTheSizesOfTheModel) {
  const SixHeads model;
  auto error = [&](const Pins &pins) {
    Result<SearchAnswer> answer = model.plan("megatron", pins);
    EXPECT_FALSE(answer);
    return answer ? "no error" : answer.error().message;
  };
  Pins pinned;
  pinned.mesh = *parseMesh("tp=4");
  EXPECT_TRUE(model.plan("tbc", pinned));
  EXPECT_EQ(error(pinned), "--mesh tp=4: megatron splits 6 groups of 8 columns of h.0.q.w over tp, "
                           "and 4 parts are impossible; with this model it runs tp of 1 or 2");
  Pins asked;
  ASSERT_TRUE(addPin("tp=4", /*isForbidden=*/false, asked));
  EXPECT_EQ(error(asked).rfind("--pin tp=4: megatron splits 6 groups", 0), 0u) << error(asked);
  Pins all;
  all.strategy = "tp";
  EXPECT_EQ(error(all).rfind("--strategy tp on 4 devices: megatron splits", 0), 0u) << error(all);
  Pins released = pinned; // the layout is the user's
  released.ops = {{"*.up", "column"}};
  EXPECT_TRUE(model.plan("megatron", released));

  SixHeads pair;
  pair.job.gpus = 2;
  for (const char *executor : {"megatron", "nemo", "nanotron"}) {
    EXPECT_FALSE(model.plan(executor, onlyTensorAxis())) << executor << " has no tp of 4";
    Result<SearchAnswer> open = pair.plan(executor, onlyTensorAxis());
    ASSERT_TRUE(open) << executor << ": " << open.error().message;
    EXPECT_EQ(open->plan.mesh.tp, 2) << executor;
  }
  Pins context;
  context.mesh = *parseMesh("cp=2,dp=2");
  EXPECT_TRUE(model.plan("megatron", context));
  Result<SearchAnswer> odd = SixHeads(18).plan("megatron", context);
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("two parts on each rank of 18 tokens"), std::string::npos)
      << odd.error().message;
}

// In layers of another form tp stays 1, unless the user asks for it.
TEST(ExecutorPlans, SplitLayersOfMegatronAlone) {
  SixHeads model;
  model.job.gpus = 2;
  EXPECT_TRUE(model.plan("megatron", onlyTensorAxis())) << "no names";
  model.name("", "");
  EXPECT_TRUE(model.plan("megatron", onlyTensorAxis()));
  model.name("ln_f.w", "h.1.norm"); // no matrix
  EXPECT_TRUE(model.plan("megatron", onlyTensorAxis()));
  model.name("wte", "h.0.table"); // rows of a third matrix
  EXPECT_FALSE(model.plan("megatron", onlyTensorAxis()));
  Pins asked = onlyTensorAxis();
  asked.conditions.push_back({"tp", "2"});
  ASSERT_TRUE(model.plan("megatron", asked));
  EXPECT_EQ(model.plan("megatron", asked)->plan.mesh.tp, 2);
}

// The layers of a model begin where the number in the names of modules changes.
TEST(ExecutorPlans, LayersAreNumberedModules) {
  const Graph graph =
      makeMlp(1, std::vector<int64_t>(9, 64), 2); // 8 matmuls, 7 of them with a unary
  Job job = jobFor(4, 64);
  EXPECT_EQ(layerBegins(graph, job), std::vector<int>()) << "no names";
  auto names = std::make_shared<ModelNames>();
  const int perLayer = 4;
  for (int op = 0; op < 12; ++op)
    names->modules[graph.ops[size_t(op)].id] =
        "h." + std::to_string(op / perLayer) + (op % 2 == 0 ? ".fc" : ".act");
  names->modules[graph.ops[12].id] = "head.0"; // of a shorter list
  job.names = names;
  EXPECT_EQ(layerBegins(graph, job), (std::vector<int>{4, 8}));

  Pins pins;
  pins.mesh = *parseMesh("pp=2,dp=2");
  const Cluster megatron = *runBy(*loadCluster("h100-sxm"), "megatron");
  Result<SearchAnswer> answer = search(graph, job, megatron, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_GT(answer->plan.stages.size(), 1u);
  for (size_t chunk = 1; chunk < answer->plan.stages.size(); ++chunk) {
    const std::string &first = answer->plan.stages[chunk];
    EXPECT_TRUE(first == graph.ops[4].id || first == graph.ops[8].id) << first;
  }
}

// The 16-bit gradient of a micro-batch is complete when the micro-batch's residuals are free.
TEST(ExecutorPlans, GradientsTakeTheMemoryOfResiduals) {
  constexpr int64_t width = 2048, layers = 8;
  const Graph graph = makeMlp(1, std::vector<int64_t>(layers + 1, width), 2);
  auto states = [&](int64_t samples) {
    Pins pins;
    pins.recompute = "none";
    pins.microBatch = samples;
    Job job = jobFor(1, samples);
    job.precision = Precision::BF16;
    Result<SearchAnswer> answer =
        search(graph, job, *runBy(*loadCluster("h100-sxm"), "nanotron"), pins);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    return double(bytesOf(answer->plan, "executor states"));
  };
  const double gradient = 2.0 * layers * width * width, more = states(16) - states(8192);
  EXPECT_GT(more, 0.9 * gradient);
  EXPECT_LE(more, gradient);
}

// A host that runs ahead keeps the inputs of reduce_scatters over tp, up to a number; in a pipeline
// it waits for other stages.
TEST(ExecutorPlans, QueuedScattersKeepTheirInputs) {
  Graph graph = makeChain({});
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  auto residuals = [&](const char *mesh, int64_t queued) {
    Pins pins;
    pins.mesh = *parseMesh(mesh);
    pins.recompute = "none";
    pins.microBatch = 4;
    Cluster cluster = *runBy(*loadCluster("h100-sxm"), "nanotron");
    cluster.executor.queuedScatters = queued;
    Result<SearchAnswer> answer = search(graph, jobFor(4, 8), cluster, pins);
    EXPECT_TRUE(answer) << mesh << ": " << (answer ? "" : answer.error().message);
    return answer ? bytesOf(answer->plan, "executor residuals") : 0;
  };
  const int64_t input = 4 * 16 * 32 * 4, none = residuals("tp=4", 0); // of two matmuls in a layer
  EXPECT_EQ(residuals("tp=4", 3) - none, 3 * input);
  EXPECT_EQ(residuals("tp=4", 58) - none, 4 * input);
  EXPECT_EQ(residuals("pp=2,tp=2", 58), residuals("pp=2,tp=2", 0));
}

// The host launches each kernel that is neither a view nor fused. Small micro-batches wait for it,
// large ones hide it, and the search's prices are those of the plan.
TEST(ExecutorPlans, SmallKernelsWaitForTheHost) {
  const Graph graph = makeMlp(1, std::vector<int64_t>(9, 1024), 2);
  auto plan = [&](double hostSeconds, int64_t samples, const char *mesh, int64_t gpus) {
    Job job = jobFor(gpus, 2 * samples);
    Pins pins;
    pins.mesh = *parseMesh(mesh);
    pins.recompute = "none";
    pins.microBatch = samples;
    Cluster cluster = *runBy(*loadCluster("a100-80gb-sxm"), "megatron");
    cluster.executor.hostSeconds = hostSeconds;
    Result<SearchAnswer> answer = search(graph, job, cluster, pins);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds * (1 + 1e-9));
    return answer->plan;
  };
  constexpr double host = 1e-3;
  const Plan small = plan(host, 4, "dp=1", 1);
  double launches = 0;
  for (StagePart part : {&StageSeconds::launchForward, &StageSeconds::launchBackward})
    for (const WorkSum &work : small.prediction.chunks[0].of(part))
      launches += double(work.count);
  int launched = 0;
  for (int op = 0; op < int(graph.ops.size()); ++op)
    launched += opLaunches(graph, op, {}, frameworkShare(graph, graph.ops[op])) > 0;
  EXPECT_EQ(launches, launched);
  EXPECT_NEAR(small.prediction.stageSeconds[0], host * launched, 1e-9);
  EXPECT_GT(small.prediction.time.launches, small.prediction.time.compute);
  EXPECT_EQ(plan(host, 1 << 20, "dp=1", 1).prediction.time.launches, 0);
  EXPECT_EQ(plan(0, 4, "dp=1", 1).prediction.time.launches, 0);
  const Plan pipeline = plan(host, 4, "pp=2", 2);
  EXPECT_GT(pipeline.prediction.time.launches, 0);
  const std::string text = writePlan(pipeline);
  EXPECT_EQ(writePlan(*readPlan(text, "plan.json")), text);
}

// In a pipeline over nodes the ranks of a group over tp wait for each other's hosts, and messages
// hold their stages. Plans have the prices of the search, above the bound.
TEST(ExecutorPlans, PipelinesOverNodesWaitForHostsAndMessages) {
  const Graph graph = makeMlp(1, std::vector<int64_t>(9, 1024), 2);
  Pins pins;
  pins.mesh = *parseMesh("pp=2,tp=2");
  pins.recompute = "none";
  pins.microBatch = 4;
  auto plan = [&](int64_t perNode, double messageSeconds) {
    Cluster cluster = *runBy(*loadCluster("h100-sxm"), "nanotron");
    cluster.devicesPerNode = perNode;
    cluster.executor.groupWait = 0.5;
    cluster.executor.messageSeconds = messageSeconds;
    Result<SearchAnswer> answer = search(graph, jobFor(4, 32), cluster, pins);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds * (1 + 1e-9));
    const std::string text = writePlan(answer->plan);
    EXPECT_EQ(writePlan(*readPlan(text, "plan.json")), text);
    return answer->plan;
  };
  auto partOf = [](const Plan &plan, StagePart part) {
    return plan.prediction.chunks[0].seconds.*part;
  };
  const Plan inside = plan(4, 0), across = plan(2, 0), held = plan(2, 1);
  EXPECT_NEAR(partOf(across, &StageSeconds::launchForward),
              1.5 * partOf(inside, &StageSeconds::launchForward), 1e-12);
  EXPECT_EQ(partOf(across, &StageSeconds::messageForward), 0);
  EXPECT_EQ(partOf(held, &StageSeconds::messageForward), 1); // to one neighbour
  EXPECT_EQ(partOf(held, &StageSeconds::messageBackward), 1);
  // Eight micro-batches and a bubble of one, two messages each.
  EXPECT_NEAR(held.prediction.stepSeconds - across.prediction.stepSeconds, 2 * (8 + 1), 1e-6);
}

// A bound on plans of an executor that sums gradients in the last backward does not count what that
// hides.
TEST(ExecutorPlans, BoundsLetTheLastBackwardHideReductions) {
  const Graph graph = makeMlp(1, std::vector<int64_t>(9, 1024), 2);
  for (int64_t accumulation : {1, 2})
    for (auto [zero, most] : {std::pair(0, 0), {0, 1}, {1, 0}, {1, 1}}) {
      Pins pins;
      pins.mesh = *parseMesh("dp=4");
      pins.zero = zero;
      pins.microBatch = 1 << 12;
      Cluster cluster = *runBy(*loadCluster("h100-sxm"), "nanotron");
      cluster.executor.hostSeconds = 0;
      cluster.executor.lastBackwardZero = most;
      Result<SearchAnswer> answer = search(graph, jobFor(4, accumulation << 14), cluster, pins);
      ASSERT_TRUE(answer) << answer.error().message;
      const Prediction &prediction = answer->plan.prediction;
      EXPECT_EQ(prediction.time.hiddenData > 0, zero <= most);
      EXPECT_EQ(prediction.chunks[0].seconds.reduceLast > 0, zero <= most);
      const StageSeconds &seconds = prediction.chunks[0].seconds;
      EXPECT_EQ(seconds.reduceStep + seconds.reduceMicro > 0, zero > most);
      EXPECT_LE(answer->plan.lowerBoundSeconds, prediction.stepSeconds * (1 + 1e-9));
    }
}

// DeepSpeed gathers parameters for forward, recompute and backward; FSDP for the first, and once
// for the others.
TEST(ExecutorPlans, RecomputeGathersAgainWhereParametersAreReleased) {
  ChainSizes sizes;
  sizes.layers = 4;
  const Graph graph = makeChain(sizes);
  auto dataSeconds = [&](const char *executor, const char *recompute) {
    Pins pins;
    pins.mesh = *parseMesh("fsdp=4");
    pins.zero = 3;
    pins.recompute = recompute;
    Cluster cluster = *runBy(*loadCluster("a100-80gb-sxm"), executor);
    cluster.overlapFraction = 0;
    Result<SearchAnswer> answer = search(graph, jobFor(4, 16), cluster, pins);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    return answer->plan.prediction.time.data;
  };
  EXPECT_GT(dataSeconds("deepspeed", "full"), 1.1 * dataSeconds("deepspeed", "none"));
  EXPECT_NEAR(dataSeconds("llm-foundry", "full") / dataSeconds("llm-foundry", "none"), 1, 0.01);
}

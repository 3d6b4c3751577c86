//===- PinsTest.cpp - --pin and --forbid ------------------------------------===//

#include "planner/explain/Explain.h"
#include "planner/graph/Recompute.h"
#include "planner/pins/Conditions.h"
#include "planner/pins/OpPins.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Search.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

namespace {

/// The words of --pin and of --forbid.
struct Words {
  std::vector<std::string> pin = {}, forbid = {};
};

Job jobFor(int64_t gpus, int64_t batch) {
  Job job;
  job.gpus = gpus;
  job.globalBatch = batch;
  job.precision = Precision::F32;
  return job;
}

Result<SearchAnswer> planWith(const Graph &graph, const Words &words, Pins pins = {},
                              int64_t gpus = 4) {
  for (bool isForbidden : {false, true})
    for (const std::string &text : isForbidden ? words.forbid : words.pin)
      if (Status status = addPin(text, isForbidden, pins); !status)
        return status.error();
  return search(graph, jobFor(gpus, 16), *loadCluster("h100-sxm"), pins);
}

std::string errorWith(const Graph &graph, const Words &words, const Pins &pins = {}) {
  Result<SearchAnswer> answer = planWith(graph, words, pins);
  EXPECT_FALSE(answer);
  return answer ? "no error" : answer.error().message;
}

Pins onMesh(const char *mesh) {
  Pins pins;
  pins.mesh = *parseMesh(mesh);
  return pins;
}

/// Returns the split of op `id` over tp in the plan.
SplitKind splitOf(const Graph &graph, const Plan &plan, const std::string &id) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  EXPECT_TRUE(step) << step.error().message;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].id == id)
      return splitKind(step->graph, int(op), step->assignment.strategies[op],
                       step->assignment.mesh.axisIndex("tp"));
  ADD_FAILURE() << "no op " << id;
  return WholeOp;
}

const ChainSizes sizes{3, 1, 16, 4, 8, 64, 96};

TEST(OpPins, DecideHowOpsAreSplit) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> open = planWith(graph, {}, onMesh("tp=4"));
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(splitOf(graph, open->plan, "h.1.up"), ColumnSplit);
  EXPECT_EQ(splitOf(graph, open->plan, "h.1.down"), RowSplit);

  Result<SearchAnswer> pinned =
      planWith(graph, {{"h.1.up=row", "h.1.down=column", "h.2.[ud]*=whole"}}, onMesh("tp=4"));
  ASSERT_TRUE(pinned) << pinned.error().message;
  const Plan &plan = pinned->plan;
  EXPECT_EQ(splitOf(graph, plan, "h.1.up"), RowSplit);
  EXPECT_EQ(splitOf(graph, plan, "h.1.down"), ColumnSplit);
  EXPECT_EQ(splitOf(graph, plan, "h.2.up"), WholeOp);
  EXPECT_EQ(splitOf(graph, plan, "h.2.down"), WholeOp);
  EXPECT_EQ(splitOf(graph, plan, "h.0.up"), splitOf(graph, open->plan, "h.0.up"))
      << "nothing was said of it";
  EXPECT_GE(plan.prediction.stepSeconds, open->plan.lowerBoundSeconds);
  EXPECT_EQ(predict(graph, plan)->stepSeconds, plan.prediction.stepSeconds);
}

TEST(OpPins, ForbidIsTheOtherWayRound) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> answer =
      planWith(graph, {{}, {"h.1.up=column", "h.2.up=tp", "h.0.down=whole"}}, onMesh("tp=4"));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(splitOf(graph, answer->plan, "h.1.up"), RowSplit) << "tp was asked for by name";
  EXPECT_EQ(splitOf(graph, answer->plan, "h.2.up"), WholeOp);
  EXPECT_NE(splitOf(graph, answer->plan, "h.0.down"), WholeOp);
}

/// A free mesh gets an axis tp that divides the pinned splits, also if they name parameters.
TEST(OpPins, MakeAnAxis) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> open = planWith(graph, {}), pinned = planWith(graph, {{"h.*.up.w=tp"}});
  ASSERT_TRUE(open && pinned) << pinned.error().message;
  EXPECT_EQ(open->plan.mesh.tp, 1) << "or this says nothing";
  EXPECT_GT(pinned->plan.mesh.tp, 1);
  for (const char *id : {"h.0.up", "h.1.up", "h.2.up"})
    EXPECT_NE(splitOf(graph, pinned->plan, id), WholeOp);
  EXPECT_GE(pinned->plan.prediction.stepSeconds, open->plan.prediction.stepSeconds);
  EXPECT_LE(pinned->plan.lowerBoundSeconds, pinned->plan.prediction.stepSeconds);
  ASSERT_FALSE(pinned->plan.reasons.empty());
  const Reason &reason = pinned->plan.reasons[0];
  EXPECT_EQ(reason.decision, "pin");
  EXPECT_EQ(reason.value, "h.*.up.w=tp");
  EXPECT_EQ(reason.origin, Origin::Pinned);
  EXPECT_EQ(reason.text, "3 ops match");
  EXPECT_TRUE(readPlan(writePlan(pinned->plan), "plan.json"));
}

TEST(OpPins, DecideWhatIsKept) {
  Graph graph = makeChain(sizes);
  auto again = [](const Plan &plan, const std::string &id) {
    return std::count(plan.recomputeOps.begin(), plan.recomputeOps.end(), id) > 0;
  };
  Pins none = onMesh("dp=4"), full = none;
  none.recompute = "none";
  full.recompute = "full";
  Result<SearchAnswer> some = planWith(graph, {{"h.*.act=recompute"}}, none);
  ASSERT_TRUE(some) << some.error().message;
  EXPECT_TRUE(again(some->plan, "h.0.act") && again(some->plan, "h.2.act"));
  EXPECT_FALSE(again(some->plan, "h.1.up"));
  EXPECT_GT(some->plan.prediction.time.recompute, 0);
  EXPECT_TRUE(readPlan(writePlan(some->plan), "plan.json"));

  Result<SearchAnswer> all = planWith(graph, {}, full),
                       most = planWith(graph, {{"*.up=keep"}}, full);
  ASSERT_TRUE(all && most);
  EXPECT_TRUE(again(all->plan, "h.1.up"));
  EXPECT_FALSE(again(most->plan, "h.1.up"));
  EXPECT_LT(most->plan.prediction.time.recompute, all->plan.prediction.time.recompute);
}

/// Stages begin only at pinned ops, even if other cuts would be faster.
TEST(OpPins, DecideWhereStagesBegin) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> open = planWith(graph, {}, onMesh("pp=2,dp=2")),
                       late = planWith(graph, {{"h.2.*=begin"}}, onMesh("pp=2,dp=2")),
                       early = planWith(graph, {{"h.0.down=begin"}}, onMesh("pp=2,dp=2"));
  ASSERT_TRUE(open && late && early) << late.error().message << early.error().message;
  ASSERT_EQ(late->plan.stages.size(), 2u);
  EXPECT_EQ(late->plan.stages[1].substr(0, 4), "h.2.");
  EXPECT_EQ(early->plan.stages[1], "h.0.down");
  for (const Plan *plan : {&late->plan, &early->plan}) {
    EXPECT_GE(plan->prediction.stepSeconds, open->plan.prediction.stepSeconds);
    EXPECT_LE(plan->lowerBoundSeconds, plan->prediction.stepSeconds);
    EXPECT_EQ(predict(graph, *plan)->stepSeconds, plan->prediction.stepSeconds);
  }
  // A free mesh gets a pipeline with as many stages.
  Result<SearchAnswer> free = planWith(graph, {{"h.1.*=begin", "h.2.*=begin"}}, {}, 6);
  ASSERT_TRUE(free) << free.error().message;
  EXPECT_EQ(free->plan.stages.size(), 3u);
  EXPECT_TRUE(readPlan(writePlan(free->plan), "plan.json"));

  EXPECT_THAT(errorWith(graph, {{"h.1.*=begin"}}, onMesh("dp=4")),
              AllOf(HasSubstr("--pin h.1.*=begin"), HasSubstr("2 stages")));
  EXPECT_THAT(errorWith(graph, {{"h.1.*=begin", "h.1.attn=begin"}}, onMesh("pp=2,dp=2")),
              AnyOf(HasSubstr("begins the same stage"), HasSubstr("3 stages")));
  EXPECT_THAT(errorWith(graph, {{}, {"h.1.*=begin"}}, onMesh("pp=2,dp=2")),
              HasSubstr("not forbidden"));
}

/// The collectives over tp in a plan, by name.
std::map<std::string, int64_t> collectivesOf(const Plan &plan) {
  std::map<std::string, int64_t> counts;
  for (const CollectiveLine &line : plan.prediction.collectives)
    if (line.count.axes == "tp")
      counts[reshard::name(line.count.kind)] += line.count.count;
  return counts;
}

/// Matmuls by columns, then by rows. Their sums are all_reduced, or with the tokens split
/// reduce_scattered and gathered.
TEST(OpPins, FollowMegatron) {
  Graph graph = makeChain(sizes);
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  const Pins mesh = onMesh("tp=4");
  for (const char *word : {"*=megatron", "*=megatron-sp"}) {
    Result<SearchAnswer> answer = planWith(graph, {{word}}, mesh);
    ASSERT_TRUE(answer) << answer.error().message;
    for (const char *op : {"h.0.q", "h.1.k", "h.2.v", "h.1.up", "head"})
      EXPECT_EQ(splitOf(graph, answer->plan, op), ColumnSplit) << op;
    // The vocabulary of this graph's table cannot be split.
    EXPECT_NE(splitOf(graph, answer->plan, "embed"), ColumnSplit);
    for (const char *op : {"h.0.proj", "h.1.down", "h.2.down"})
      EXPECT_EQ(splitOf(graph, answer->plan, op), RowSplit) << op;
    const bool splitsTokens = std::string(word) == "*=megatron-sp";
    for (const char *op : {"h.0.ln1", "h.1.add1", "h.2.add2", "ln_f"})
      EXPECT_EQ(splitOf(graph, answer->plan, op), splitsTokens ? TokenSplit : WholeOp) << op;
    std::map<std::string, int64_t> counts = collectivesOf(answer->plan);
    EXPECT_EQ(counts["all_to_all"], 0) << word;
    EXPECT_EQ(counts["reduce_scatter"] > 0, splitsTokens) << word;
    EXPECT_GE(answer->plan.prediction.stepSeconds, answer->plan.lowerBoundSeconds);
  }
  EXPECT_THAT(errorWith(graph, {{}, {"*=megatron"}}), HasSubstr("pinned, not forbidden"));
  EXPECT_THAT(errorWith(graph, {{"*=megatron", "h.1.up=row"}}, mesh),
              AllOf(HasSubstr("--pin *=megatron"), HasSubstr("--pin h.1.up=row")));
  graph.ops[0].expertLoop = 0;
  EXPECT_THAT(errorWith(graph, {{"*=megatron"}}, mesh), HasSubstr("models without experts"));
}

/// A size of an axis that is impossible has its reason.
TEST(Conditions, SayWhyASizeIsImpossible) {
  Graph graph = makeChain(sizes);
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  auto error = [&](int64_t gpus, const std::vector<std::string> &pins) {
    Result<SearchAnswer> answer = planWith(graph, {pins}, {}, gpus);
    EXPECT_FALSE(answer);
    return answer ? "no error" : answer.error().message;
  };
  EXPECT_THAT(error(8, {"cp=3"}), HasSubstr("is cp=3: cp=3 does not divide 8 devices"));
  EXPECT_THAT(error(6, {"cp=3"}), HasSubstr("16 tokens, which do not divide by 3"));
  EXPECT_THAT(error(8, {"fsdp=3"}), HasSubstr("fsdp=3 does not divide 8 devices"));
  EXPECT_THAT(error(6, {"dp=3"}), HasSubstr("dp=3 does not divide --batch 16"));
  EXPECT_THAT(error(8, {"pp=3"}), HasSubstr("pp=3 does not divide 8 devices"));
  EXPECT_THAT(error(5, {"tp=5"}), HasSubstr("tp=5 divides no dim of the model but the batch"));
  EXPECT_THAT(error(8, {"ep=2"}), HasSubstr("ep=2: the model has no routed experts"));
  EXPECT_THAT(error(4, {"pp=4", "tp=2"}), HasSubstr("pp=4 tp=2 has 8 ranks"));
  EXPECT_THAT(error(1024, {"pp=512"}), HasSubstr("pp=512: a stage can begin at"));
  graph.sequenceFactor = -1;
  EXPECT_THAT(error(4, {"cp=2"}), HasSubstr("no sequence dim"));
}

/// An executor has its layout without pins; pins for splits come first.
TEST(OpPins, OfAnExecutor) {
  Graph graph = makeChain(sizes);
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  const Job job = jobFor(4, 16);
  const auto splits = [&](const std::vector<OpPin> &pins, TensorParallel layout) {
    return PinnedOps::make(graph, job, pins, layout)->splits;
  };
  EXPECT_THAT(splits({}, TensorParallel::Any), testing::IsEmpty());
  const std::vector<unsigned> own = splits({}, TensorParallel::MegatronTokens);
  EXPECT_EQ(own, splits({{"*", "megatron-sp"}}, TensorParallel::Any));
  EXPECT_NE(own, splits({}, TensorParallel::Megatron));
  EXPECT_EQ(splits({{"*.up", "row"}}, TensorParallel::Megatron),
            splits({{"*.up", "row"}}, TensorParallel::Any));
  const PinnedOps ofExecutor = *PinnedOps::make(graph, job, {}, TensorParallel::Megatron);
  EXPECT_EQ(ofExecutor.splitter, nullptr) << "meshes without tp stay";
  EXPECT_TRUE(ofExecutor.areMetBy(graph, std::vector<reshard::OpStrategy>(graph.ops.size()), -1));
}

TEST(OpPins, SayWhatCannotBe) {
  Graph graph = makeChain(sizes);
  EXPECT_THAT(errorWith(graph, {{"*.upp=tp"}}),
              AllOf(HasSubstr("--pin *.upp=tp"), HasSubstr("did you mean \"*.up\"?")));
  EXPECT_THAT(errorWith(graph, {{"nothing.like.it=tp"}}), HasSubstr("called so; tbc check"));
  EXPECT_THAT(errorWith(graph, {{"*.attn=column"}}),
              HasSubstr("none of the ops that match multiplies with a matrix of parameters"));
  EXPECT_THAT(errorWith(graph, {{"*.up=tp", "h.1.*=whole"}}),
              AllOf(HasSubstr("--pin *.up=tp"), HasSubstr("--pin h.1.*=whole"),
                    HasSubstr("op \"h.1.up\"")));
  EXPECT_THAT(errorWith(graph, {{"*.up=column"}, {"h.1.up=tp"}}),
              AllOf(HasSubstr("--pin *.up=column"), HasSubstr("--forbid h.1.up=tp")));
  EXPECT_THAT(errorWith(graph, {{"*.act=recompute", "h.0.act=keep"}}),
              AllOf(HasSubstr("--pin *.act=recompute"), HasSubstr("--pin h.0.act=keep")));
  EXPECT_THAT(errorWith(graph, {{"*.up=tp"}}, onMesh("dp=4")),
              AllOf(HasSubstr("--pin *.up=tp"), HasSubstr("--mesh dp=4")));
  EXPECT_THAT(errorWith(graph, {{"*.up=tp"}, {"tp"}}),
              AllOf(HasSubstr("--pin *.up=tp"), HasSubstr("--forbid tp")));
  // 4 heads of 8, 64 wide, 96 classes: 5 divides no size.
  Pins five = onMesh("tp=5");
  Result<SearchAnswer> answer = planWith(graph, {{"*.up=tp"}}, five, 5);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no mesh has an axis tp that divides"));
}

TEST(DecisionPins, AreConditionsOfTheSearch) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> answer = planWith(graph, {{"tp=2", "zero=1"}, {"pp", "recompute"}});
  ASSERT_TRUE(answer) << answer.error().message;
  const Plan &plan = answer->plan;
  EXPECT_EQ(plan.mesh.tp, 2);
  EXPECT_EQ(plan.mesh.pp, 1);
  EXPECT_EQ(plan.parameterDefault.zero, 1);
  EXPECT_EQ(toString(plan.recompute), "none");
  std::vector<std::string> said;
  for (const Reason &reason : plan.reasons)
    if (reason.origin == Origin::Pinned)
      said.push_back(reason.decision + " " + reason.value);
  EXPECT_THAT(said, testing::IsSupersetOf({"pin tp=2", "pin zero=1", "forbid pp",
                                           "forbid recompute", "zero ZeRO-1", "recompute none"}));

  Result<SearchAnswer> recomputed = planWith(graph, {{}, {"recompute=none"}}, onMesh("dp=4"));
  ASSERT_TRUE(recomputed) << recomputed.error().message;
  EXPECT_EQ(toString(recomputed->plan.recompute), "selective");

  Result<SearchAnswer> open = planWith(graph, {});
  ASSERT_TRUE(open);
  for (auto [axis, size] : open->plan.mesh.axes())
    if (size > 1) {
      Result<SearchAnswer> without = planWith(graph, {{}, {axis}});
      ASSERT_TRUE(without) << without.error().message;
      MeshShape mesh = without->plan.mesh;
      EXPECT_EQ(*mesh.find(axis), 1) << axis;
      EXPECT_GE(without->plan.prediction.stepSeconds,
                open->plan.prediction.stepSeconds * (1 - 2e-3));
    }
}

TEST(DecisionPins, Accumulation) {
  Graph graph = makeChain(sizes);
  for (const char *number : {"1", "2", "4"}) {
    Result<SearchAnswer> answer =
        planWith(graph, {{std::string("accumulation=") + number}}, onMesh("dp=4"));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(std::to_string(answer->plan.accumulation), number);
    EXPECT_EQ(answer->plan.microBatch * answer->plan.accumulation, 4); // of 16 samples
  }
  for (bool isOpen : {false, true}) {
    Result<SearchAnswer> without =
        planWith(graph, {{}, {"accumulation"}}, isOpen ? Pins() : onMesh("fsdp=2,tp=2"));
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_EQ(without->plan.accumulation, 1);
    for (const Alternative &other : without->plan.alternatives)
      EXPECT_EQ(other.accumulation, 1) << toString(other.mesh);
  }
  EXPECT_THAT(errorWith(graph, {{"accumulation=3"}}, onMesh("dp=4")), HasSubstr("accumulation=3"));
}

TEST(DecisionPins, ContradictionsNameBoth) {
  Graph graph = makeChain(sizes);
  Pins zero, micro, recompute, schedule;
  zero.strategy = "ddp";
  micro.microBatch = 2;
  recompute.recompute = "full:2";
  schedule.schedule = "gpipe";
  struct Case {
    Words words;
    Pins pins;
    std::string first, second;
  };
  for (const Case &c : std::vector<Case>{
           {{{"tp=2", "tp=4"}}, {}, "--pin tp=4", "--pin tp=2"},
           {{{"tp=2"}, {"tp"}}, {}, "--forbid tp", "--pin tp=2"},
           {{{"tp=2"}, {"tp=2"}}, {}, "--forbid tp=2", "--pin tp=2"},
           {{{"tp=2"}}, onMesh("dp=4"), "--pin tp=2", "--mesh dp=4"},
           {{{}, {"dp=4"}}, onMesh("dp=4"), "--forbid dp=4", "--mesh dp=4"},
           {{{"zero=3"}}, zero, "--pin zero=3", "--strategy ddp"},
           {{{"micro-batch=1"}}, micro, "--pin micro-batch=1", "--micro-batch 2"},
           {{{}, {"recompute=full"}}, recompute, "--forbid recompute=full", "--recompute full:2"},
           {{{"schedule=1f1b"}}, schedule, "--pin schedule=1f1b", "--schedule gpipe"},
       })
    EXPECT_THAT(errorWith(graph, c.words, c.pins), AllOf(HasSubstr(c.first), HasSubstr(c.second)));
}

TEST(DecisionPins, WordsThatAreNoneAreNamed) {
  Pins pins;
  auto message = [&](const char *text, bool isForbidden) {
    Status status = addPin(text, isForbidden, pins);
    EXPECT_FALSE(status) << text;
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(message("zerro=3", false), HasSubstr("did you mean zero?"));
  EXPECT_THAT(message("tp", false), HasSubstr("expected DECISION=VALUE"));
  EXPECT_THAT(message("tp=many", false), HasSubstr("is a number"));
  EXPECT_THAT(message("*.mlp.*=colum", false), HasSubstr("did you mean column?"));
  EXPECT_THAT(message("=tp", false), HasSubstr("--pin =tp"));
  EXPECT_THAT(message("schedule", true), HasSubstr("say which, as in schedule=gpipe"));
  EXPECT_THAT(message("schedule=1f2b", true), HasSubstr("did you mean 1f1b?"));
  EXPECT_TRUE(pins.conditions.empty() && pins.ops.empty());
}

/// --why keeps the pins of ops, and reports them.
TEST(OpPins, AreKeptWhereAnotherDecisionIsTried) {
  Graph graph = makeChain(sizes);
  Result<SearchAnswer> answer = planWith(graph, {{"h.1.up=row", "micro-batch=4"}}, onMesh("tp=4"));
  ASSERT_TRUE(answer) << answer.error().message;
  Result<ExplainedPlan> explained = ExplainedPlan::make(graph, answer->plan);
  ASSERT_TRUE(explained);
  Result<Report> why = explainWhy(*explained, "recompute=full");
  ASSERT_TRUE(why) << why.error().message;
  EXPECT_THAT(why->facts[0].value.text,
              AllOf(HasSubstr("--pin h.1.up=row"), HasSubstr("micro-batch=4"), HasSubstr("tp=4")));
  Result<Report> tensor = explainTensor(*explained, "h.1.up.w");
  ASSERT_TRUE(tensor) << tensor.error().message;
  std::vector<std::string> texts;
  for (const Table &table : tensor->tables)
    for (const auto &row : table.rows)
      for (const Cell &cell : row)
        texts.push_back(cell.text);
  EXPECT_THAT(texts, Contains(HasSubstr("pinned: --pin h.1.up=row")));
}

} // namespace

//===----------------------------------------------------------------------===//
// Spellings of meshes
//===----------------------------------------------------------------------===//

static std::string meshText(const std::string &text, int64_t gpus = 0) {
  auto mesh = parseMesh(text, gpus);
  if (!mesh)
    return mesh.error().message;
  std::string said;
  for (const auto &[name, size] : *mesh)
    said += (said.empty() ? "" : ",") + name + "=" + std::to_string(size);
  return said;
}

TEST(ParseMesh, TakesTheNamesOfOtherFrameworks) {
  EXPECT_EQ(meshText("dp=2,tp=4"), "dp=2,tp=4");
  EXPECT_EQ(meshText("data=2,tensor=2"), "dp=2,tp=2");
  EXPECT_EQ(meshText("dp_replicate=2,dp_shard=4,cp=2"), "dp=2,fsdp=4,cp=2");
  EXPECT_EQ(meshText("pipeline=2,expert=4,context=2"), "pp=2,ep=4,cp=2");
  EXPECT_EQ(meshText(R"([[2,2],["fsdp","tp"]])"), "fsdp=2,tp=2");
  EXPECT_EQ(meshText("[[2, 2], ['fsdp', 'tp']]"), "fsdp=2,tp=2");
  EXPECT_EQ(meshText("[[2,2],[dp_shard,tp]]"), "fsdp=2,tp=2");
}

TEST(ParseMesh, MinusOneIsTheRest) {
  EXPECT_EQ(meshText("dp=-1,tp=2", 8), "dp=4,tp=2");
  EXPECT_EQ(meshText("[[-1,2],[fsdp,tp]]", 6), "fsdp=3,tp=2");
  EXPECT_THAT(meshText("dp=-1,tp=2"), HasSubstr("which needs --gpus"));
  EXPECT_THAT(meshText("dp=-1,tp=4", 6),
              HasSubstr("the others have 4 ranks, which do not divide --gpus 6"));
  EXPECT_THAT(meshText("dp=-1,tp=-1", 8), HasSubstr("one axis alone can be -1, not dp and tp"));
}

TEST(ParseMesh, SaysWhatIsWrong) {
  EXPECT_THAT(meshText("dp"), HasSubstr("expected axis=size, as in dp=2,tp=4"));
  EXPECT_THAT(meshText("dp=2,"), HasSubstr("expected axis=size"));
  EXPECT_THAT(meshText("dp=2x"), HasSubstr("expected axis=size"));
  EXPECT_THAT(meshText("dp=0"), HasSubstr("must have a size between 1 and 1048576"));
  EXPECT_THAT(meshText("dp=99999999999999999999"), HasSubstr("expected axis=size"));
  EXPECT_THAT(meshText("dp=2,data=2"), HasSubstr("axis dp is given twice"));
  EXPECT_THAT(meshText("fdsp=2"), HasSubstr("did you mean fsdp?"));
  EXPECT_THAT(meshText("[[2,2],[fsdp]]"), HasSubstr("of equal length"));
  EXPECT_THAT(meshText("[[2,2]"), HasSubstr("[[sizes], [names]]"));
  EXPECT_THAT(meshText("[[2.5],[dp]]"), HasSubstr("[[sizes], [names]]"));
}

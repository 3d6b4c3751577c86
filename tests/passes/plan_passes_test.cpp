//===- plan_passes_test.cpp - Passes between a plan and per-rank functions ----===//
//
// Passes on whole tensors keep the step equal bit for bit, and refuse edited collectives.
//
//===----------------------------------------------------------------------===//

#include "ir/Reshard.h"
#include "passes/OpIds.h"
#include "passes/plan/AnnotatePlan.h"
#include "passes/plan/InsertCollectives.h"
#include "passes/plan/Recompute.h"
#include "planner/reshard/Kernels.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <set>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::HasSubstr;

using Edit = std::function<void(const StepGraph &, StepPlan &)>;

/// The step of kMlp with the batch over two ranks of "fsdp", parameters stored flat over them, and
/// `recomputed` marked. `edit` may change the plan.
void annotate(ParsedModule &module, const std::string &recomputed = "", const Edit &edit = {}) {
  buildStep(module);
  auto train = module.function("train");
  FactorAnalysis analysis(train);
  FailureOr<StepGraph> step = extractStepGraph(train, analysis, module.function("update"));
  ASSERT_TRUE(succeeded(step)) << module.messages;
  StepPlan plan;
  plan.mesh.axes = {{"fsdp", 2}};
  plan.firstOps = {0};
  plan.batch = 4;
  plan.globalBatch = 8;
  plan.microBatches = 2;
  std::vector<reshard::AxisRef> axes = {reshard::wholeAxis(plan.mesh, 0)};
  for (size_t op = 0; op < step->ops.size(); ++op) {
    plan.strategies.push_back(reshard::batchStrategy(step->graph, int(op), axes));
    plan.recomputed.push_back(step->graph.ops[op].id == recomputed);
    plan.offloaded.push_back(false);
  }
  reshard::ParameterPlan stored;
  stored.zero = 3;
  stored.zeroAxes = axes;
  plan.parameterPlans.assign(step->graph.parameters.size(), stored);
  plan.overlap.bucketBytes = 1 << 20;
  plan.overlap.prefetch = 1;
  if (edit)
    edit(*step, plan);
  annotatePlan(*module, *step, plan);
}

std::vector<ReshardOp> reshardsOf(ParsedModule &module) {
  auto ops = module.function("train").getOps<ReshardOp>();
  return {ops.begin(), ops.end()};
}

/// Derives, inserts and joins collectives; fails the test on error.
void makeCollectives(ParsedModule &module) {
  FailureOr<DerivedStep> step = deriveStep(*module);
  ASSERT_TRUE(succeeded(step)) << module.messages;
  writeShardings(*step);
  ASSERT_TRUE(succeeded(insertCollectives(*step))) << module.messages;
  ASSERT_TRUE(succeeded(bucketCollectives(*step))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
}

TEST(PlanPasses, DoNotChangeABit) {
  for (Arith arith : {Arith::Native, Arith::Residue61}) {
    ParsedModule module(kMlp);
    annotate(module, "gelu");
    std::vector<Tensor> inputs = trainInputs(module, arith);
    std::vector<Tensor> before = evaluate(module, "train", inputs, arith);
    ASSERT_TRUE(succeeded(applyRecompute(module.function("train")))) << module.messages;
    EXPECT_TRUE(findOp(module.function("train"), "gelu.recompute"));
    makeCollectives(module);
    std::vector<Tensor> after = evaluate(module, "train", inputs, arith);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(bitwiseEqual(before[i], after[i])) << "result " << i;
  }
}

TEST(PlanPasses, InsertEveryCollectiveOfAMicroBatch) {
  ParsedModule module(kMlp);
  annotate(module);
  makeCollectives(module);
  FailureOr<DerivedStep> step = deriveStep(*module); // sees through them
  ASSERT_TRUE(succeeded(step)) << module.messages;
  size_t expected = 0;
  std::map<std::string, int> reasons;
  for (const reshard::Reshard &reshard : step->derivation.reshards)
    expected += !reshard.perStep;
  for (ReshardOp op : reshardsOf(module))
    ++reasons[op.getReason().str()];
  EXPECT_EQ(reshardsOf(module).size(), expected);
  EXPECT_GT(reasons["parameter_use"], 0); // FSDP gathers
  EXPECT_GT(reasons["gradient"], 0);      // and reduce-scatters each micro-batch
  EXPECT_TRUE(succeeded(checkCollectives(*step))) << module.messages;
}

TEST(PlanPasses, GatherAheadAndJoinReductions) {
  ParsedModule module(kMlp);
  annotate(module);
  makeCollectives(module);
  int ahead = 0, joined = 0;
  for (ReshardOp op : reshardsOf(module)) {
    joined += op.getBucket().has_value();
    if (op.getReason() == "parameter_use")
      ahead += !llvm::is_contained(op->getNextNode()->getOperands(), op.getResult());
  }
  EXPECT_GT(ahead, 0);
  EXPECT_GT(joined, 1);
}

/// The gradients of a layer norm's weight and bias sum over the same rows: one kernel makes both
/// with the cotangent that they read. A norm itself combines along its last dim.
TEST(PlanPasses, GradientsOfANormShareAKernel) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  FactorAnalysis analysis(train);
  FailureOr<StepGraph> step = extractStepGraph(train, analysis, module.function("update"));
  ASSERT_TRUE(succeeded(step)) << module.messages;
  auto reducedSizes = [&](const std::string &kind) {
    std::vector<int64_t> sizes;
    for (const reshard::GraphOp &op : step->graph.ops)
      if (op.kind == kind)
        for (const reshard::Loop &loop : op.loops)
          if (loop.isReduced)
            sizes.push_back(loop.size);
    return sizes;
  };
  // x[4, 6].
  EXPECT_EQ(reducedSizes("layer_norm"), std::vector<int64_t>{6});
  EXPECT_EQ(reducedSizes("layer_norm_grad"), std::vector<int64_t>{6});
  EXPECT_EQ(reducedSizes("norm_scale_grad"), std::vector<int64_t>{4});

  reshard::Assignment assignment;
  assignment.strategies.resize(step->graph.ops.size());
  assignment.parameterPlans.resize(step->graph.parameters.size());
  std::set<std::string> beside;
  for (const auto &[block, kernels] :
       reshard::planKernels(step->graph, assignment, reshard::derive(step->graph, assignment)))
    for (const reshard::Kernel &kernel : kernels)
      if (llvm::any_of(kernel.ops,
                       [&](int op) { return step->graph.ops[op].kind == "norm_scale_grad"; }))
        for (int op : kernel.ops)
          beside.insert(step->graph.ops[op].kind);
  EXPECT_EQ(beside, (std::set<std::string>{"add", "broadcast", "gelu_grad", "mul",
                                           "norm_scale_grad", "reduce_sum"}));
}

/// Returns the strategies that split one loop of an op of kMlp over "fsdp": pairs (op, strategy).
std::vector<std::pair<int, reshard::OpStrategy>> singleSplits() {
  std::vector<std::pair<int, reshard::OpStrategy>> splits;
  ParsedModule module(kMlp);
  annotate(module, "", [&](const StepGraph &step, const StepPlan &plan) {
    for (size_t op = 0; op < step.ops.size(); ++op)
      for (const reshard::OpStrategy &strategy :
           reshard::enumerateStrategies(step.graph, int(op), {}, reshard::wholeAxis(plan.mesh, 0)))
        splits.push_back({int(op), strategy});
  });
  return splits;
}

// An op may want a parameter in another sharding than the gathered one. The gather then stands
// before the reshard that reads it, and so do gathers issued ahead of the op.
TEST(PlanPasses, IssueGathersBeforeTheReshardsThatReadThem) {
  int chains = 0;
  for (const auto &[changed, strategy] : singleSplits()) {
    ParsedModule module(kMlp);
    annotate(module, "", [&, op = changed, &splits = strategy](const StepGraph &, StepPlan &plan) {
      plan.strategies[op] = splits;
      plan.overlap.prefetch = 2;
    });
    makeCollectives(module);
    if (HasFatalFailure())
      return;
    FailureOr<DerivedStep> step = deriveStep(*module);
    ASSERT_TRUE(succeeded(step)) << module.messages;
    for (ReshardOp op : reshardsOf(module)) {
      if (auto gather = op.getInput().getDefiningOp<ReshardOp>())
        chains += gather.getReason() == "parameter_use";
      const reshard::Reshard &derived = step->derivation.reshards[op.getNumber()];
      auto next = dyn_cast<ReshardOp>(op->getNextNode());
      bool isPassed = derived.op >= 0 && op.getReason() == "operand" && next &&
                      next.getReason() == "parameter_use";
      EXPECT_FALSE(isPassed) << "gather number " << next.getNumber() << " stands too late";
    }
  }
  EXPECT_GT(chains, 0); // else no plan of these reshards a gathered parameter
}

/// The messages of checkCollectives after `edit`.
std::string refusal(const std::function<void(ParsedModule &)> &edit) {
  ParsedModule module(kMlp);
  annotate(module);
  makeCollectives(module);
  edit(module);
  FailureOr<DerivedStep> step = deriveStep(*module);
  EXPECT_TRUE(succeeded(step)) << module.messages;
  EXPECT_TRUE(failed(step) || failed(checkCollectives(*step)));
  return module.messages;
}

TEST(PlanPasses, RefuseCollectivesThatAreNotDerived) {
  EXPECT_THAT(refusal([](ParsedModule &module) {
                ReshardOp op = reshardsOf(module).front();
                op.replaceAllUsesWith(op.getInput());
                op.erase();
              }),
              HasSubstr("is missing, of the value"));
  EXPECT_THAT(refusal([](ParsedModule &module) {
                ReshardOp op = reshardsOf(module).front();
                OpBuilder(op).clone(*op);
              }),
              HasSubstr("stands twice"));
  EXPECT_THAT(refusal([](ParsedModule &module) {
                ReshardOp op = reshardsOf(module).front();
                op.setToAttr(op.getFrom());
              }),
              HasSubstr("it goes from"));
  EXPECT_THAT(refusal([](ParsedModule &module) { reshardsOf(module).front().setNumber(1000); }),
              HasSubstr("no reshard of a micro-batch has this number"));
  EXPECT_THAT(refusal([](ParsedModule &module) { reshardsOf(module).front().setBucket(7); }),
              HasSubstr("it is in another bucket"));
}

TEST(PlanPasses, InsertOnce) {
  ParsedModule module(kMlp);
  annotate(module);
  makeCollectives(module);
  FailureOr<DerivedStep> step = deriveStep(*module);
  ASSERT_TRUE(succeeded(step));
  EXPECT_TRUE(failed(insertCollectives(*step)));
  EXPECT_THAT(module.messages, HasSubstr("tbc-insert-collectives runs once"));
}

} // namespace
} // namespace tbc

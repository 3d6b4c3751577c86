//===- planned_ir_test.cpp - Plans on the IR ------------------------------===//
//
// The IR contains the whole plan. The graph and the assignment that passes read from it equal the
// planner's, to the last number, so both derive the same collectives.
//
//===----------------------------------------------------------------------===//

#include "ir/PlannedStep.h"
#include "passes/partition/Partition.h"
#include "passes/plan/DeriveShardings.h"
#include "planner/plan/PlanApply.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/EmitIr.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

using namespace tbc;
using namespace mlir;

namespace {

using testing::HasSubstr;

struct Case {
  const char *model;
  test::PlanRequest request;
};

test::PlanRequest request(const char *mesh, const char *strategy, const char *schedule,
                          const char *recompute) {
  return {mesh, strategy, schedule, recompute};
}

test::PlanRequest withOffload(test::PlanRequest request, const char *offload) {
  request.offload = offload;
  return request;
}

test::PlanRequest inZigzag(const char *mesh, const char *context) {
  test::PlanRequest request{mesh};
  request.context = context;
  request.sequenceOrder = "zigzag";
  return request;
}

test::PlanRequest interleaved(const char *schedule, const char *placement) {
  test::PlanRequest request{"pp=2", "auto", schedule, "full"};
  request.virtualStages = 2;
  request.placement = placement;
  return request;
}

test::PlanRequest overlapping(const char *mesh, const char *strategy) {
  test::PlanRequest request{mesh, strategy, "", "selective"};
  request.bucketSize = "1MiB";
  request.prefetch = "2";
  return request;
}

std::vector<Case> cases() {
  return {{"tiny-mlp", request("dp=2", "ddp", "", "none")},
          {"tiny-gpt2", request("dp=2,tp=2", "auto", "", "selective")},
          {"tiny-gpt2", request("pp=2,dp=2", "auto", "1f1b", "full")},
          {"tiny-gpt2", interleaved("zero-bubble", "v")},
          {"tiny-gpt2", interleaved("interleaved", "loop")},
          {"tiny-gpt2", withOffload(request("fsdp=2", "fsdp", "", "none"), "all")},
          {"tiny-llama", inZigzag("cp=2", "ring")},
          {"tiny-llama", inZigzag("cp=2,tp=2", "all-gather")},
          {"tiny-llama", overlapping("fsdp=4", "fsdp")},
          {"tiny-resnet", request("dp=4", "zero2", "", "selective")},
          {"moe-8l", request("ep=4,tp=2", "auto", "", "full")}};
}

template <typename List> std::string join(const List &list) {
  std::ostringstream text;
  for (auto entry : list)
    text << ' ' << entry;
  return text.str();
}

std::string describe(const std::vector<reshard::TensorDim> &dims) {
  std::string text;
  for (const reshard::TensorDim &dim : dims)
    text += " " + std::to_string(dim.tensor) + "." + std::to_string(dim.dim);
  return text;
}

std::string describe(const reshard::TensorLayout &layout) {
  std::string text = std::to_string(layout.elementBytes) + " bytes";
  for (const reshard::DimLayout &dim : layout.dims) {
    text += " [";
    for (const reshard::Segment &segment : dim.segments) {
      text += "+";
      for (const reshard::Factor &factor : segment.factors)
        text += " f" + std::to_string(factor.id) + ":" + std::to_string(factor.size);
    }
    text += "]";
  }
  return text;
}

/// Describes a whole graph, one line per value and op.
std::string describe(const reshard::Graph &graph) {
  std::ostringstream text;
  for (const reshard::GraphValue &value : graph.values)
    text << value.name << ": " << describe(value.layout) << " role " << int(value.role) << " of "
         << value.producer << "." << value.producerResult << " " << name(value.dtype)
         << " cotangent of " << value.cotangentOf << " for" << join(value.users) << "\n";
  for (const reshard::GraphOp &op : graph.ops) {
    text << op.id << " " << op.kind << " phase " << int(op.phase) << " chunk " << op.chunk
         << " forward " << op.forwardOp << ":" << join(op.operands) << " ->" << join(op.results)
         << " flags " << op.additive << op.generator << " experts " << op.expertLoop << " flops "
         << op.flops << " " << name(op.kernelClass);
    for (const reshard::Loop &loop : op.loops)
      text << " loop f" << loop.factor << ":" << loop.size << " kind " << int(loop.kind) << " in"
           << describe(loop.operandDims) << " out" << describe(loop.resultDims);
    text << "\n";
  }
  for (const reshard::GraphParameter &parameter : graph.parameters)
    text << "parameter " << parameter.value << " gradient " << parameter.gradient << "\n";
  for (auto [state, update] : graph.stateUpdates)
    text << "state " << state << " becomes " << update << "\n";
  text << graph.loss << " " << graph.count << " " << graph.stepTotalBytes << " "
       << graph.stepStateBytes << " " << graph.batchFactor << " " << graph.sequenceFactor << "\n";
  return text.str();
}

std::string describe(const reshard::Assignment &assignment) {
  const reshard::Mesh &mesh = assignment.mesh;
  std::ostringstream text;
  for (const reshard::MeshAxis &axis : mesh.axes)
    text << axis.name << "=" << axis.size << " ";
  text << assignment.pipelineAxis << " " << assignment.numStages << " chunks"
       << join(assignment.chunkStage) << " micro-batches " << assignment.microBatches << " states "
       << assignment.offloadsStates << "\n";
  for (size_t op = 0; op < assignment.strategies.size(); ++op) {
    text << op << ":";
    for (const auto &[loop, axes] : assignment.strategies[op].loopAxes)
      if (!axes.empty())
        text << " " << loop << "@" << toString(mesh, axes);
    text << (assignment.offloads(int(op)) ? " offloaded\n" : "\n");
  }
  for (const reshard::ParameterPlan &plan : assignment.parameterPlans)
    text << plan.zero << plan.keepGathered << " " << toString(mesh, plan.zeroAxes) << " "
         << toString(mesh, plan.reduceAxes) << "\n";
  return text.str();
}

/// Calls `check` with the module after pass `wanted`.
void afterPass(const test::Model &model, const planner::Plan &plan, const char *wanted,
               const std::function<void(ModuleOp)> &check) {
  bool isCalled = false;
  Status status = driver::runPasses(*model.step, plan, [&](llvm::StringRef pass, ModuleOp module) {
    if (pass != wanted)
      return;
    isCalled = true;
    check(module);
  });
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_TRUE(isCalled) << wanted;
}

TEST(PlannedIr, SaysAllOfThePlan) {
  bool hasClones = false, hasWeightPhase = false, hasOffload = false;
  for (const Case &each : cases()) {
    SCOPED_TRACE(std::string(each.model) + " " + each.request.mesh);
    test::Model model = test::loadModel(each.model);
    auto plan = test::makePlan(model, each.request);
    ASSERT_TRUE(plan) << plan.error().message;
    auto planned = planner::applyPlan(model.step->step.graph, *plan);
    ASSERT_TRUE(planned) << planned.error().message;
    hasClones |= !planned->reexecuted.empty();
    hasOffload |= !planned->assignment.offloadedOps.empty();
    for (const reshard::GraphOp &op : planned->graph.ops)
      hasWeightPhase |= op.phase == reshard::Phase::Weight;
    afterPass(model, *plan, "tbc-derive-shardings", [&](ModuleOp module) {
      FailureOr<PlannedStep> read = readPlannedStep(module);
      ASSERT_TRUE(succeeded(read));
      EXPECT_EQ(describe(read->graph), describe(planned->graph));
      EXPECT_EQ(describe(read->assignment), describe(planned->assignment));
      EXPECT_EQ(read->overlap, plan->overlap);
      EXPECT_EQ(read->zigzag, planned->isZigzag ? plan->mesh.cp : 1);
      ASSERT_EQ(read->step.ops.size(), planned->graph.ops.size());
      for (size_t i = 0; i < read->step.ops.size(); ++i)
        EXPECT_EQ(read->step.ops[i]->getAttrOfType<StringAttr>(kIdAttr).str(),
                  planned->graph.ops[i].id);
    });
  }
  EXPECT_TRUE(hasClones && hasWeightPhase && hasOffload);
}

TEST(PlannedIr, StaysTheSameThroughItsText) {
  test::Model model = test::loadModel("tiny-gpt2");
  auto plan = test::makePlan(model, request("pp=2,dp=2", "auto", "1f1b", "full"));
  ASSERT_TRUE(plan) << plan.error().message;
  auto text = driver::annotatedText(*model.step, *plan, /*isFolded=*/false);
  ASSERT_TRUE(text) << text.error().message;
  OwningOpRef<ModuleOp> read = parseSourceString<ModuleOp>(*text, model.context.get());
  ASSERT_TRUE(read);
  auto planned = planner::applyPlan(model.step->step.graph, *plan);
  ASSERT_TRUE(planned) << planned.error().message;
  FailureOr<PartitionedStep> fromText = runPlanPasses(std::move(read));
  ASSERT_TRUE(succeeded(fromText));
  std::string functions, again;
  llvm::raw_string_ostream(functions) << *fromText->module;
  afterPass(model, *plan, "tbc-partition",
            [&](ModuleOp module) { llvm::raw_string_ostream(again) << module; });
  EXPECT_EQ(functions, again);
}

/// Returns the functions of each rank, partitioned only from this text.
std::string partitioned(const test::Model &model, const std::string &text) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, model.context.get());
  EXPECT_TRUE(module);
  std::vector<PartitionedTensor> tensors;
  PassManager manager(model.context.get());
  manager.addPass(createPartitionPass(tensors));
  EXPECT_TRUE(module && succeeded(manager.run(*module)));
  std::string functions;
  llvm::raw_string_ostream(functions) << *module;
  return functions;
}

TEST(PlannedIr, IsPartitionedFromTheTextOfAnyPass) {
  test::Model model = test::loadModel("tiny-gpt2");
  test::PlanRequest pipeline = interleaved("zero-bubble", "v");
  pipeline.mesh = "pp=2,tp=2";
  auto plan = test::makePlan(model, pipeline);
  ASSERT_TRUE(plan) << plan.error().message;
  std::map<std::string, std::string> texts;
  Status status = driver::runPasses(*model.step, *plan, [&](llvm::StringRef pass, ModuleOp module) {
    llvm::raw_string_ostream(texts[pass.str()]) << module;
  });
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(texts.at("tbc-bucket"), HasSubstr("send from stage 0 to stage 1"));
  for (const char *pass : {"tbc-split-backward", "tbc-derive-shardings", "tbc-bucket"})
    EXPECT_EQ(partitioned(model, texts.at(pass)), texts.at("tbc-partition")) << pass;
}

TEST(PlannedIr, FoldsLargeSteps) {
  test::Model model = test::loadModel("gpt2-8l");
  auto plan = test::makePlan(model, request("dp=2,tp=2", "auto", "", "none"));
  ASSERT_TRUE(plan) << plan.error().message;
  auto whole = driver::annotatedText(*model.step, *plan, false);
  auto folded = driver::annotatedText(*model.step, *plan, true);
  ASSERT_TRUE(whole && folded);
  EXPECT_LT(folded->size() * 5, whole->size() * 2);
  EXPECT_THAT(*folded, HasSubstr("more graph blocks like that of"));
  EXPECT_THAT(*folded, HasSubstr("tbc.mesh = #tbc.mesh<\"dp\"=2, \"tp\"=2>"));
}

/// Returns the diagnostics of a partition after `edit` of the sharded module.
std::string refusal(const std::function<void(func::FuncOp)> &edit) {
  test::Model model = test::loadModel("tiny-mlp");
  auto plan = test::makePlan(model, request("dp=2", "ddp", "", "none"));
  EXPECT_TRUE(plan) << plan.error().message;
  std::string message;
  afterPass(model, *plan, "tbc-derive-shardings", [&](ModuleOp module) {
    OwningOpRef<ModuleOp> copy(cast<ModuleOp>(module->clone()));
    edit(copy->lookupSymbol<func::FuncOp>("train"));
    driver::DiagnosticCollector diagnostics(*model.context);
    FailureOr<DerivedStep> step = deriveStep(*copy);
    EXPECT_TRUE(failed(step) || failed(checkShardings(*step)));
    message = diagnostics.error(ErrorCode::Other, "nothing was said").message;
  });
  return message;
}

/// Returns the first op with this attribute.
Operation *findWith(func::FuncOp train, StringRef name) {
  for (Operation &op : train.getBody().front())
    if (op.hasAttr(name))
      return &op;
  return nullptr;
}

TEST(PlannedIr, RefusesShardingsThatTheStrategiesDoNotGive) {
  EXPECT_THAT(refusal([](func::FuncOp train) {
                Operation *op = findWith(train, kStrategyAttr);
                ASSERT_TRUE(op);
                op->removeAttr(kStrategyAttr);
              }),
              HasSubstr("but the strategies on the IR give"));
}

TEST(PlannedIr, RefusesImpossibleShardings) {
  auto setSharding = [](const char *text) {
    return [text](func::FuncOp train) {
      Operation *op = findWith(train, kStrategyAttr);
      ASSERT_TRUE(op);
      Attribute sharding = parseAttribute(text, train.getContext());
      ASSERT_TRUE(sharding);
      op->setAttr(kShardingAttr, ArrayAttr::get(train.getContext(), {sharding}));
    };
  };
  EXPECT_THAT(refusal(setSharding("#tbc.sharding<[{f999 = [\"dp\"]}, {}]>")),
              HasSubstr("is invalid: "));
  EXPECT_THAT(refusal(setSharding("#tbc.sharding<[{}]>")), HasSubstr("has 1 dims"));
  EXPECT_THAT(refusal(setSharding("#tbc.sharding<[{f0 = [\"tp\"]}, {}]>")),
              HasSubstr("the mesh has no axis \"tp\""));
}

TEST(PlannedIr, NamesTheMissingPlan) {
  test::Model model = test::loadModel("tiny-mlp");
  driver::DiagnosticCollector diagnostics(*model.context);
  EXPECT_TRUE(failed(readPlannedStep(*model.step->model.module)));
  EXPECT_THAT(diagnostics.error(ErrorCode::Other, "").message,
              HasSubstr("run tbc-apply-plan first"));
}

} // namespace

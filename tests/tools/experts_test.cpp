//===- experts_test.cpp - Expert parallelism equals its closed form -------===//
//
// Checks docs/design.md, section 3, "Experts", derived only from the shapes of the model.
//
//===----------------------------------------------------------------------===//

#include "ir/Experts.h"
#include "passes/OpIds.h"
#include "runtime/exec/SimulatedCluster.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

using namespace tbc;
using reshard::CollectiveKind;

namespace {

constexpr int64_t floatBytes = 4;

/// Executions per step, by kind, axes and bytes.
using Lines = std::map<std::tuple<CollectiveKind, std::string, int64_t>, int64_t>;

struct Form {
  const char *mesh;
  int64_t dp, fsdp, ep;
  double capacityFactor; // 0: no capacity
};

void PrintTo(const Form &form, std::ostream *out) {
  *out << form.mesh << " capacity " << form.capacityFactor;
}

std::string axes(const Form &form, bool withExperts) {
  std::string text;
  for (auto [name, size] : {std::pair<const char *, int64_t>{"dp", form.dp},
                            {"fsdp", form.fsdp},
                            {"ep", withExperts ? form.ep : 1}})
    if (size > 1)
      text += (text.empty() ? "" : "+") + std::string(name);
  return text;
}

bool isReadInBackward(mlir::Value parameter) {
  for (mlir::Operation *user : parameter.getUsers())
    if (isBackward(user))
      return true;
  return false;
}

bool isExpertWeight(const std::string &name) {
  return name.find("mlp.gate_up") != std::string::npos ||
         name.find("mlp.down") != std::string::npos;
}

test::Model loadModel(const Form &form) {
  std::map<std::string, double> settings;
  if (form.capacityFactor > 0)
    settings["capacity_factor"] = form.capacityFactor;
  return test::loadModel("moe-8l", "sgd", settings);
}

/// Adds the collectives of each layer of experts, per micro-batch of one sample per rank.
void addLayers(const test::Model &model, const Form &form, int64_t microBatches, Lines &lines) {
  auto add = [&](CollectiveKind kind, int64_t bytes, int64_t count) {
    lines[{kind, "ep", bytes}] += count * microBatches;
  };
  int64_t batch = model.step->model.batch;
  mlir::func::FuncOp train = model.step->train;
  for (RoutedExpertsOp layer : train.getOps<RoutedExpertsOp>()) {
    int64_t tokens = layer.getInput().getType().getDimSize(0) / batch;
    int64_t width = layer.getInput().getType().getDimSize(1);
    int64_t experts = layer.getWeights().getType().getDimSize(1);
    // Tokens are gathered and results scattered. Backward gathers tokens again, because only a
    // rank's own are kept, and gathers their cotangents.
    add(CollectiveKind::AllGather, form.ep * tokens * width * floatBytes, 3);
    add(CollectiveKind::ReduceScatter, form.ep * tokens * width * floatBytes, 2);
    // Router weights go to the ranks of their experts, and their gradient comes back.
    add(CollectiveKind::AllToAll, tokens * experts * floatBytes, 2);
  }
  for (DispatchOp deal : train.getOps<DispatchOp>()) // both ways, in both phases
    add(CollectiveKind::AllToAll, deal.getType().getNumElements() / batch * floatBytes, 2);
}

class Experts : public testing::TestWithParam<Form> {};

TEST_P(Experts, CollectivesAndBytesAreTheClosedForm) {
  const Form &form = GetParam();
  test::Model model = loadModel(form);
  test::PlanRequest request;
  request.mesh = form.mesh;
  // Parameter by parameter; overlap_test.cpp tests buckets.
  request.bucketSize = request.gatherSize = "none";
  if (form.fsdp == 1)
    request.zero = 0;
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  const int64_t microBatches = plan->accumulation;
  ASSERT_EQ(microBatches, 8 / (form.dp * form.fsdp * form.ep));
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;

  Lines expected, actual;
  addLayers(model, form, microBatches, expected);
  int64_t resident = 0, experts = 0;
  const reshard::Graph &graph = model.step->step.graph;
  for (const reshard::GraphParameter &parameter : graph.parameters) {
    const reshard::GraphValue &value = graph.values[parameter.value];
    bool isExpert = isExpertWeight(value.name);
    experts += isExpert;
    int64_t elements = value.layout.numElements() / (isExpert ? form.ep : 1);
    // With fsdp the plan is FULL_SHARD, over all data ranks that have the same parameter.
    int64_t shards = form.fsdp == 1 ? 1 : form.fsdp * (isExpert ? 1 : form.ep);
    int64_t shard = (elements + shards - 1) / shards * floatBytes, whole = shard * shards;
    resident += shard;
    std::string over = axes(form, !isExpert);
    if (form.fsdp == 1 && !over.empty())
      expected[{CollectiveKind::AllReduce, over, whole}] += 1;
    if (form.fsdp > 1) {
      int64_t uses = isReadInBackward(model.step->step.values[parameter.value]) ? 2 : 1;
      expected[{CollectiveKind::ReduceScatter, over, whole}] += microBatches;
      expected[{CollectiveKind::AllGather, over, whole}] += uses * microBatches;
    }
  }
  EXPECT_EQ(experts, 16);
  // The step's own scalars: the loss and the count of labels that are not ignored.
  expected[{CollectiveKind::AllReduce, axes(form, true), 2 * floatBytes}] += 1;

  for (const reshard::CollectiveCount &line : driver::countInstructions(compiled->program))
    actual[{line.kind, line.axes, line.bytes}] += line.count;
  EXPECT_EQ(actual, expected);

  auto data = driver::makeRunData(*model.step, *plan, 1, kernels::Arith::Native, 1);
  ASSERT_TRUE(data) << data.error().message;
  auto cluster = runtime::SimulatedCluster::create(compiled->program, {});
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->load([&](const std::string &name) { return data->initial.at(name); }));
  for (int64_t rank = 0; rank < cluster->numRanks(); ++rank)
    EXPECT_EQ(cluster->executor(rank).memory().parameterBytes, resident) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Forms, Experts,
                         testing::Values(Form{"ep=2", 1, 1, 2, 0}, Form{"ep=4", 1, 1, 4, 0},
                                         Form{"dp=2,ep=2", 2, 1, 2, 0},
                                         Form{"fsdp=2,ep=2", 1, 2, 2, 0},
                                         Form{"ep=2", 1, 1, 2, 0.75}, Form{"ep=4", 1, 1, 4, 1.25},
                                         Form{"dp=2,ep=2", 2, 1, 2, 0.75},
                                         Form{"fsdp=2,ep=4", 1, 2, 4, 0.75}));

/// Returns the loss of one serial step, with experts of this capacity.
kernels::Tensor serialLoss(double capacityFactor) {
  test::Model model = loadModel({"ep=2", 1, 1, 2, capacityFactor});
  test::PlanRequest request;
  request.mesh = "ep=2";
  auto plan = test::makePlan(model, request);
  EXPECT_TRUE(plan) << plan.error().message;
  auto data = driver::makeRunData(*model.step, *plan, 1, kernels::Arith::Residue61, 1);
  EXPECT_TRUE(data) << data.error().message;
  auto record = driver::runSerial(*model.step, *plan, *data, kernels::Arith::Residue61);
  EXPECT_TRUE(record) << record.error().message;
  return record->at("loss 1");
}

TEST(ExpertCapacity, DropsTokensWhereItIsSmallAndNoneWhereItIsLarge) {
  kernels::Tensor all = serialLoss(0);
  EXPECT_TRUE(bitwiseEqual(serialLoss(4), all));
  EXPECT_FALSE(bitwiseEqual(serialLoss(0.75), all)); // as in the plans above and in verify-plans
}

TEST(TensorAxis, ThePlanSaysWhatItDoesNotSplit) {
  test::PlanRequest request;
  request.mesh = "tp=3"; // tiny-gpt2 has 4 heads, 64 and 256 elsewhere
  auto plan = test::makePlan(test::loadModel("tiny-gpt2", "sgd"), request);
  ASSERT_TRUE(plan) << plan.error().message;
  bool said = false;
  for (const std::string &warning : plan->warnings)
    said |= warning.find("every device of a tp group does all of") == 0 &&
            warning.find("einsum ops") != std::string::npos &&
            warning.find("does not divide by tp=3") != std::string::npos;
  EXPECT_TRUE(said);
}

TEST(ExpertAxis, IsRefusedWhereNothingIsToBeSplit) {
  test::PlanRequest request;
  request.mesh = "ep=2";
  auto plan = test::makePlan(test::loadModel("tiny-gpt2"), request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::Usage);
  EXPECT_NE(plan.error().message.find("no routed experts"), std::string::npos)
      << plan.error().message;
  request.mesh = "ep=8";
  plan = test::makePlan(test::loadModel("moe-8l"), request);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("does not divide the 4 experts"), std::string::npos)
      << plan.error().message;
}

} // namespace

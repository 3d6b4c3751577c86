//===- signature_test.cpp - Strategies equal their closed forms -----------===//
//
// Replicating everything also equals the serial program. So for a named strategy, the collectives
// of the compiled Program and its resident bytes per rank must equal the table in docs/design.md,
// section 3. They are derived here only from the parameters' shapes. Example: zero1 over 4 ranks
// has one all_gather and one reduce_scatter per parameter.
//
//===----------------------------------------------------------------------===//

#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "runtime/exec/SimulatedCluster.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <map>

using namespace tbc;
using reshard::CollectiveCount;
using reshard::CollectiveKind;

namespace {

constexpr int64_t floatBytes = 4;

struct Form {
  const char *strategy;
  const char *mesh;
  int64_t shardRanks; // over which ZeRO shards
  /// Executions of each collective per parameter, per step of A micro-batches; see times().
  int64_t allReduces, reduceScatters, allGathers;
  const char *allReduceAxes;
  const char *shardAxes;
  bool parametersSharded, gradientsSharded, stateSharded;
};

/// For the test name in CTest.
void PrintTo(const Form &form, std::ostream *out) { *out << form.strategy << " " << form.mesh; }

constexpr int64_t perMicroBatch = -1;
/// In forward, and again in backward if backward reads the parameter. It reads no bias, and no
/// weight of a first layer, whose input needs no gradient.
constexpr int64_t perUse = -2;

int64_t times(int64_t count, int64_t microBatches, bool readInBackward) {
  if (count == perUse)
    return (readInBackward ? 2 : 1) * microBatches;
  return count == perMicroBatch ? microBatches : count;
}

bool isReadInBackward(mlir::Value parameter) {
  for (mlir::Operation *user : parameter.getUsers())
    if (isBackward(user))
      return true;
  return false;
}

const Form forms[] = {
    {"ddp", "dp=4", 1, 1, 0, 0, "dp", "", false, false, false},
    {"zero1", "dp=4", 4, 0, 1, 1, "", "dp", false, false, true},
    {"zero2", "dp=4", 4, 0, perMicroBatch, 1, "", "dp", false, true, true},
    {"shard-grad-op", "fsdp=4", 4, 0, perMicroBatch, perMicroBatch, "", "fsdp", true, true, true},
    {"zero3", "fsdp=4", 4, 0, perMicroBatch, perUse, "", "fsdp", true, true, true},
    {"fsdp", "fsdp=4", 4, 0, perMicroBatch, perUse, "", "fsdp", true, true, true},
    {"hybrid-shard", "dp=2,fsdp=2", 2, 1, perMicroBatch, perUse, "dp", "fsdp", true, true, true},
};

/// Returns the padded bytes of a parameter that is cut into `ranks` chunks. Example: 10 elements in
/// 4 chunks are padded to 12, i.e. 48 bytes.
int64_t paddedBytes(int64_t elements, int64_t ranks) {
  return (elements + ranks - 1) / ranks * ranks * floatBytes;
}

/// The last parameter: whether all gradients are reduced in one bucket, as one tensor, and all
/// parameters gathered so.
class Signature : public testing::TestWithParam<std::tuple<std::string, Form, bool>> {};

TEST_P(Signature, CollectivesAndBytesAreTheClosedForm) {
  const std::string &modelName = std::get<0>(GetParam());
  const Form &form = std::get<1>(GetParam());
  const bool inOneBucket = std::get<2>(GetParam());
  test::Model model = test::loadModel(modelName);
  test::PlanRequest request;
  request.mesh = form.mesh;
  request.strategy = form.strategy;
  request.bucketSize = request.gatherSize = inOneBucket ? "1GiB" : "none";
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  const int64_t microBatches = plan->accumulation;
  ASSERT_EQ(microBatches, 2);

  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;

  // The closed form, by kind: bytes and executions.
  std::map<CollectiveKind, std::pair<int64_t, int64_t>> expected, actual;
  int64_t resident = 0, gradients = 0, state = 0, parameters = 0;
  const reshard::Graph &graph = model.step->step.graph;
  for (const reshard::GraphParameter &parameter : graph.parameters) {
    int64_t elements = graph.values[parameter.value].layout.numElements();
    int64_t whole = paddedBytes(elements, form.shardRanks);
    int64_t shard = whole / form.shardRanks;
    auto add = [&](CollectiveKind kind, int64_t bytes, int64_t count) {
      if (count == 0)
        return;
      auto &[totalBytes, executions] = expected[kind];
      totalBytes += bytes * count;
      executions = inOneBucket ? std::max(executions, count) : executions + count;
    };
    add(CollectiveKind::AllReduce, form.shardRanks > 1 ? shard : whole,
        times(form.allReduces, microBatches, false));
    add(CollectiveKind::ReduceScatter, whole, times(form.reduceScatters, microBatches, false));
    add(CollectiveKind::AllGather, whole,
        times(form.allGathers, microBatches,
              isReadInBackward(model.step->step.values[parameter.value])));
    parameters += 1;
    resident += form.parametersSharded ? shard : elements * floatBytes;
    gradients += form.gradientsSharded ? shard : elements * floatBytes;
    // The shard of the sum over micro-batches, from the last backward to the update.
    if (form.stateSharded && !form.gradientsSharded && microBatches > 1)
      gradients += shard;
    state += 2 * (form.stateSharded ? shard : elements * floatBytes);
  }
  // The step's own scalars: the loss and the count of labels that are not ignored, over all ranks.
  const int64_t stepBytes = 2 * floatBytes;
  // The number of steps taken, an i64 on every rank.
  const int64_t stepStateBytes = 8;
  expected[CollectiveKind::AllReduce].first += stepBytes;
  expected[CollectiveKind::AllReduce].second += 1;
  ASSERT_GT(parameters, 0);

  for (const CollectiveCount &line : driver::countInstructions(compiled->program)) {
    actual[line.kind].first += line.bytes * line.count;
    actual[line.kind].second += line.count;
    bool isLoss = line.kind == CollectiveKind::AllReduce && line.bytes == stepBytes;
    if (!isLoss)
      EXPECT_EQ(line.axes,
                line.kind == CollectiveKind::AllReduce ? form.allReduceAxes : form.shardAxes);
  }
  EXPECT_EQ(actual, expected);

  // The actual bytes on each rank.
  auto data = driver::makeRunData(*model.step, *plan, 1, kernels::Arith::Native, 1);
  ASSERT_TRUE(data) << data.error().message;
  auto cluster = runtime::SimulatedCluster::create(compiled->program, {});
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->load([&](const std::string &name) { return data->initial.at(name); }));
  runtime::StepInputs inputs;
  inputs.microBatches = data->steps[0];
  inputs.learningRate = 1e-3;
  auto loss = cluster->step(inputs);
  ASSERT_TRUE(loss) << loss.error().message;
  for (int64_t rank = 0; rank < cluster->numRanks(); ++rank) {
    runtime::MemoryUse use = cluster->executor(rank).memory();
    EXPECT_EQ(use.parameterBytes, resident) << "rank " << rank;
    EXPECT_EQ(use.gradientBytes, gradients) << "rank " << rank;
    EXPECT_EQ(use.optimizerStateBytes, state + stepStateBytes) << "rank " << rank;
  }
}

std::string formName(const testing::TestParamInfo<std::tuple<std::string, Form, bool>> &info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param).strategy +
                     (std::get<2>(info.param) ? "_one_bucket" : "");
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, Signature,
    testing::Combine(testing::Values(std::string("tiny-mlp"), std::string("tiny-gpt2"),
                                     std::string("tiny-llama"), std::string("gpt2-8l"),
                                     std::string("llama-8l"), std::string("unet-8l"),
                                     std::string("moe-8l")),
                     testing::ValuesIn(forms), testing::Bool()),
    formName);

} // namespace

//===- vocabulary_test.cpp - Vocabulary parallelism -----------------------===//
//
// Only the rows of the embedding table and the classes of the cross entropy are on `tp`. The
// collectives are those of Megatron-LM's parallel embedding and parallel cross entropy (Shoeybi et
// al. 2019, section 3). No rank has the whole table or all logits of a token.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/PlaceAxes.h"
#include "planner/place/Place.h"
#include "planner/plan/PlanApply.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;
using reshard::CollectiveCount;
using reshard::CollectiveKind;

namespace {

const reshard::GraphOp *findOp(const reshard::Graph &graph, const std::string &kind) {
  for (const reshard::GraphOp &op : graph.ops)
    if (op.kind == kind)
      return &op;
  return nullptr;
}

/// Returns the loop over which embedding sums.
int vocabularyLoop(const reshard::GraphOp &embedding) {
  for (size_t loop = 0; loop < embedding.loops.size(); ++loop)
    if (embedding.loops[loop].kind == reshard::LoopKind::Reduction)
      return int(loop);
  return -1;
}

/// Returns the bytes of a collective over `value` on one of `dataRanks` ranks.
int64_t bytesOf(const reshard::Graph &graph, int value, int64_t dataRanks) {
  return graph.values[value].layout.numElements() * graph.values[value].layout.elementBytes /
         dataRanks;
}

struct VocabularyCase {
  const char *model;
  const char *mesh;
  bool isTied; // the table is also the last matrix
  int padTo = 1;
};
void PrintTo(const VocabularyCase &c, std::ostream *out) {
  *out << c.model << " " << c.mesh << " " << c.padTo;
}

class Vocabulary : public testing::TestWithParam<VocabularyCase> {};

TEST_P(Vocabulary, IsSummedOverItsShards) {
  test::Model model =
      test::loadModel(GetParam().model, "sgd", {{"pad_vocabulary", double(GetParam().padTo)}});
  auto made = test::makePlan(model, {GetParam().mesh});
  ASSERT_TRUE(made) << made.error().message;
  planner::Plan plan = *made;
  const reshard::Graph graph =
      planner::withBatch(model.step->step.graph, plan.microBatch * plan.mesh.dataRanks());
  const reshard::GraphOp *embedding = findOp(graph, "embedding");
  const reshard::GraphOp *sums = findOp(graph, "class_sums");
  ASSERT_TRUE(embedding && sums);
  // Tied or not, both vocabularies are numbered separately, so the last matrix has its own factor.
  std::vector<reshard::FactorId> vocabulary = {embedding->loops[vocabularyLoop(*embedding)].factor,
                                               sums->loops[vocabularyLoop(*sums)].factor};
  plan.ops.clear();
  for (size_t index = 0; index < graph.ops.size(); ++index) {
    const reshard::GraphOp &op = graph.ops[index];
    if (op.generator || !planner::choosesForItself(graph, int(index)))
      continue;
    planner::OpDecision decision;
    decision.ops = {op.id};
    std::map<int, planner::AxisNames> loopAxes;
    for (size_t loop = 0; loop < op.loops.size(); ++loop) {
      if (op.loops[loop].factor == graph.batchFactor && plan.mesh.dp > 1)
        loopAxes[int(loop)] = {"dp"};
      if (std::count(vocabulary.begin(), vocabulary.end(), op.loops[loop].factor))
        loopAxes[int(loop)] = {"tp"};
    }
    decision.placement = planner::placementOf(graph, int(index), loopAxes);
    plan.ops.push_back(decision);
  }

  auto compiled = driver::compilePlan(*model.step, plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  // The last number of a vocabulary depends on no data, so it is a constant.
  for (const program::Stage &stage : compiled->program.stages)
    for (program::BlockId id : stage.blocks())
      for (const program::Instruction &instruction : stage.block(id).instructions)
        EXPECT_NE(instruction.op, "reduce_max");
  const int64_t dp = plan.mesh.dp;
  std::map<int64_t, int64_t> expected, actual; // executions per step by bytes of an all_reduce
  auto expect = [&](int value) { expected[bytesOf(graph, value, dp)] += plan.accumulation; };
  expect(embedding->results[0]);
  expect(findOp(graph, "class_max")->results[0]);
  expect(sums->results[0]);
  expect(sums->results[1]);
  // Backward through the last matrix: the gradient of its other operand.
  expect(embedding->results[0]);
  if (dp == 1) // the step's own scalars travel over every axis
    expected[graph.stepTotalBytes] += 1;
  for (const CollectiveCount &line : driver::countInstructions(compiled->program))
    if (line.axes == "tp") {
      EXPECT_EQ(line.kind, CollectiveKind::AllReduce) << line.bytes;
      actual[line.bytes] += line.count;
    }
  EXPECT_EQ(actual, expected);

  for (const reshard::GraphParameter &parameter : graph.parameters) {
    const reshard::GraphValue &value = graph.values[parameter.value];
    size_t index = &parameter - graph.parameters.data();
    bool isTable = parameter.value == embedding->operands[0];
    bool isLast = std::any_of(value.users.begin(), value.users.end(), [&](int user) {
      const auto &loops = graph.ops[user].loops;
      return std::any_of(loops.begin(), loops.end(),
                         [&](const auto &loop) { return loop.factor == vocabulary[1]; });
    });
    int64_t local = reshard::localBytes(value.layout, compiled->derivation.stored[index]);
    int64_t ranks = isTable || isLast ? plan.mesh.tp : 1;
    EXPECT_EQ(local * ranks, value.layout.numElements() * value.layout.elementBytes) << value.name;
    EXPECT_EQ(isTable && isLast, isTable && GetParam().isTied) << value.name;
  }

  auto data = driver::makeRunData(*model.step, plan, 2, kernels::Arith::Residue61, 7);
  ASSERT_TRUE(data) << data.error().message;
  auto serial = driver::runSerial(*model.step, plan, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(serial) << serial.error().message;
  auto parallel = driver::runParallel(compiled->program, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(parallel) << parallel.error().message;
  for (const driver::Comparison &line : driver::compareExactly(*serial, *parallel))
    EXPECT_TRUE(line.equal) << "residue differs: " << line.name;
}

/// A multiple from the flag holds for the largest vocabulary, also if padding adds 1/64 or more.
TEST(PaddedVocabulary, IsOfTheMultipleAskedFor) {
  test::Model asked = test::loadModel("tiny-gpt2", "sgd", {{"pad_vocabulary", 192}});
  ASSERT_EQ(asked.step->paddedVocabularies.size(), 1u);
  EXPECT_EQ(asked.step->paddedVocabularies[0].size, 256);
  EXPECT_EQ(asked.step->paddedVocabularies[0].paddedSize, 384);
  EXPECT_TRUE(asked.step->model.warnings.empty());
  EXPECT_TRUE(test::loadModel("tiny-mlp", "sgd").step->paddedVocabularies.empty()); // 10 classes
}

/// 256 classes padded to 258: two on the second rank are padding.
TEST(PaddedVocabulary, TrainsAsTheOriginal) {
  test::Model original = test::loadModel("tiny-llama", "adamw");
  test::Model padded = test::loadModel("tiny-llama", "adamw", {{"pad_vocabulary", 258}});
  ASSERT_EQ(padded.step->paddedVocabularies.size(), 1u);
  EXPECT_EQ(padded.step->paddedVocabularies[0].size, 256);
  EXPECT_EQ(padded.step->paddedVocabularies[0].paddedSize, 258);
  auto plan = test::makePlan(padded, {"tp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  for (kernels::Arith arith : {kernels::Arith::Residue61, kernels::Arith::F64}) {
    auto data = driver::makeRunData(*padded.step, *plan, 2, arith, 7);
    ASSERT_TRUE(data) << data.error().message;
    auto originalData = driver::makeRunData(*original.step, *plan, 2, arith, 7);
    ASSERT_TRUE(originalData) << originalData.error().message;
    auto results = driver::runSerial(*padded.step, *plan, *data, arith);
    ASSERT_TRUE(results) << results.error().message;
    auto expected = driver::runSerial(*original.step, *plan, *originalData, arith);
    ASSERT_TRUE(expected) << expected.error().message;
    int numPadded = 0;
    for (const auto &entry : *expected) {
      const std::string &name = entry.first;
      const kernels::Tensor &tensor = entry.second;
      ASSERT_TRUE(results->count(name)) << name;
      if (!kernels::isFloat(tensor.dtype()))
        continue;
      const kernels::Tensor &with = results->at(name);
      const kernels::Shape &shape = tensor.shape();
      numPadded += with.shape() != shape;
      // Only matrices have a padded dim. Elements after the original ones are zero.
      auto same = [&](const auto &elements, const auto &wanted) {
        int64_t columns = with.shape().empty() ? 1 : with.shape().back();
        int64_t kept = shape.empty() ? 1 : shape.back();
        for (size_t i = 0; i < elements.size(); ++i) {
          int64_t row = int64_t(i) / columns, column = int64_t(i) % columns;
          int64_t at = row * kept + column;
          bool isOriginal = column < kept && at < int64_t(wanted.size());
          ASSERT_EQ(elements[i], isOriginal ? wanted[at] : wanted[0] - wanted[0])
              << name << "[" << i << "]";
        }
      };
      if (arith == kernels::Arith::F64)
        same(with.data<double>(), tensor.data<double>());
      else
        same(with.data<kernels::Residue>(), tensor.data<kernels::Residue>());
    }
    EXPECT_GE(numPadded, 2); // at least the table and the last matrix
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Vocabulary,
                         testing::Values(VocabularyCase{"tiny-llama", "tp=2", false},
                                         VocabularyCase{"tiny-llama", "tp=4", false},
                                         VocabularyCase{"tiny-llama", "dp=2,tp=2", false},
                                         VocabularyCase{"tiny-llama", "tp=2", false, 258},
                                         VocabularyCase{"tiny-gpt2", "dp=2,tp=2", true, 258},
                                         VocabularyCase{"tiny-gpt2", "tp=2", true}));

} // namespace

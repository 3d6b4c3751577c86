//===- context_test.cpp - Sequences split over cp -------------------------===//
//
// The communication of each form of context parallelism, derived only from the shapes of the
// attentions, and the refused cases. verify_plans_test.cpp checks that results equal the serial
// program's.
//
//===----------------------------------------------------------------------===//

#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

using namespace tbc;
using reshard::CollectiveCount;
using reshard::CollectiveKind;
using testing::HasSubstr;

namespace {

constexpr int64_t floatBytes = 4;

struct Traffic {
  int64_t bytes = 0, count = 0; // per step
  bool operator==(const Traffic &o) const { return bytes == o.bytes && count == o.count; }
};
void PrintTo(const Traffic &traffic, std::ostream *out) {
  *out << traffic.count << " of " << traffic.bytes << " bytes in all";
}
using Traffics = std::map<CollectiveKind, Traffic>;

/// Returns whether `value` has one row per token of a sample and is the same for all samples.
bool hasSequence(const reshard::Graph &graph, int value) {
  bool perToken = false, perSample = false;
  for (const reshard::DimLayout &dim : graph.values[value].layout.dims)
    for (const reshard::Segment &segment : dim.segments)
      for (const reshard::Factor &factor : segment.factors) {
        perToken |= factor.id == graph.sequenceFactor;
        perSample |= factor.id == graph.batchFactor;
      }
  return perToken && !perSample;
}

int64_t bytesOfAll(const reshard::Graph &graph, int value) {
  return graph.values[value].layout.numElements() * floatBytes;
}

/// Returns the traffic of the attentions and position tables of `graph` per step, with one sample
/// per micro-batch.
Traffics closedForm(const reshard::Graph &graph, const std::string &form, int64_t ranks,
                    int64_t microBatches) {
  Traffics expected;
  auto add = [&](CollectiveKind kind, int64_t bytes, int64_t count) {
    expected[kind].bytes += bytes * count * microBatches;
    expected[kind].count += count * microBatches;
  };
  for (const reshard::GraphOp &op : graph.ops) {
    // A position table is whole on every rank and each rank reads its rows. The gradients of all
    // rows are gathered in each micro-batch.
    bool readsTable = op.phase == reshard::Phase::Forward && !op.operands.empty() &&
                      graph.values[op.operands[0]].role == reshard::ValueRole::Parameter;
    if (readsTable && hasSequence(graph, op.results[0]))
      add(CollectiveKind::AllGather, bytesOfAll(graph, op.results[0]), 1);
    if (op.kind != "attention")
      continue;
    auto bytesOf = [&](int value) { // of one sample
      return bytesOfAll(graph, value) / graph.values[value].layout.shape()[0];
    };
    // A view of a value may be recomputed in backward, and is then communicated again.
    auto isView = [&](int index) {
      return index >= 0 && graph.ops[index].kernelClass == reshard::KernelClass::None;
    };
    auto isSaved = [&](int value) {
      const std::vector<int> &users = graph.values[value].users;
      return std::any_of(users.begin(), users.end(), [&](int user) {
        return graph.ops[user].phase == reshard::Phase::Backward;
      });
    };
    auto again = [&](int operand) {
      int value = op.operands[operand];
      return isView(graph.values[value].producer) && !isSaved(value) ? 1 : 0;
    };
    for (int operand : {1, 2}) { // keys and values
      int64_t whole = bytesOf(op.operands[operand]);
      if (form == "ring") {
        // n - 1 hops in forward and again in backward; their gradients take n hops, back to their
        // rank.
        add(CollectiveKind::Permute, whole / ranks, 2 * (ranks - 1) + ranks);
      } else if (form == "all-gather") {
        add(CollectiveKind::AllGather, whole, 1 + again(operand));
        add(CollectiveKind::ReduceScatter, whole, 1);
      } else { // and their gradients back
        add(CollectiveKind::AllToAll, whole / ranks, 2 + again(operand));
      }
    }
    if (form == "all-to-all") {
      const std::vector<int> &users = graph.values[op.results[0]].users;
      // The gradient of the weight behind it reads the result, too.
      bool isRead = std::any_of(users.begin(), users.end(), [&](int user) {
        const reshard::GraphOp &reader = graph.ops[user];
        bool isOfWeight = reader.phase == reshard::Phase::Backward && reader.kind == "einsum";
        return isView(user) || isOfWeight;
      });
      add(CollectiveKind::AllToAll, bytesOf(op.operands[0]) / ranks, 2 + again(0));
      add(CollectiveKind::AllToAll, bytesOf(op.results[0]) / ranks, isRead ? 3 : 2);
    }
  }
  return expected;
}

struct Case {
  const char *model, *form, *order;
  int64_t ranks;
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.model << " " << c.form << " " << c.order << " " << c.ranks;
}

test::PlanRequest requestOf(const Case &c) {
  test::PlanRequest request;
  request.mesh = "cp=" + std::to_string(c.ranks);
  request.context = c.form;
  request.sequenceOrder = c.order;
  return request;
}

class ContextTraffic : public testing::TestWithParam<Case> {};

TEST_P(ContextTraffic, IsTheClosedForm) {
  test::Model model = test::loadModel(GetParam().model);
  auto plan = test::makePlan(model, requestOf(GetParam()));
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  Traffics actual;
  for (const CollectiveCount &line : driver::countInstructions(compiled->program)) {
    EXPECT_EQ(line.axes, "cp");
    if (line.kind == CollectiveKind::AllReduce) // gradients, loss
      continue;
    actual[line.kind].bytes += line.bytes * line.count;
    actual[line.kind].count += line.count;
  }
  EXPECT_EQ(actual, closedForm(model.step->step.graph, GetParam().form, GetParam().ranks,
                               plan->accumulation));
}

const Case cases[] = {
    {"tiny-gpt2", "ring", "contiguous", 2},       {"tiny-gpt2", "ring", "contiguous", 4},
    {"tiny-gpt2", "all-gather", "contiguous", 4}, {"tiny-gpt2", "all-to-all", "contiguous", 2},
    {"tiny-llama", "ring", "zigzag", 2},          {"tiny-llama", "all-gather", "zigzag", 2},
    {"tiny-llama", "all-to-all", "contiguous", 2}};

INSTANTIATE_TEST_SUITE_P(Forms, ContextTraffic, testing::ValuesIn(cases));

/// Returns the message with which a plan is refused.
std::string refusal(const char *model, const test::PlanRequest &request,
                    const std::string &kept = "") {
  test::Model loaded = test::loadModel(model, "adamw", {}, kept);
  auto plan = test::makePlan(loaded, request);
  return plan ? "not refused" : plan.error().message;
}

TEST(ContextErrors, SayWhatCannotBeSplit) {
  EXPECT_THAT(refusal("tiny-resnet", {"cp=2"}), HasSubstr("no sequence dim of their own"));
  EXPECT_THAT(refusal("tiny-gpt2", {"cp=3"}),
              HasSubstr("the sequence has 8 tokens, which do not divide by 3"));
  EXPECT_THAT(refusal("tiny-gpt2", requestOf({"", "all-to-all", "", 8})),
              HasSubstr("has no loop beside the sequence, such as heads, that divides by 8"));
  EXPECT_THAT(refusal("tiny-gpt2", requestOf({"", "ring", "zigzag", 8})),
              HasSubstr("do not divide by twice 8"));
  EXPECT_THAT(refusal("tiny-gpt2", requestOf({"", "ring", "zigzag", 2})),
              HasSubstr("has an entry for every place of the sequence"));
  // A row of BERT whose keys are all padding attends to all of them.
  EXPECT_THAT(refusal("masked-bert", requestOf({"", "ring", "", 2}), "attention_mask"),
              HasSubstr("cannot take the sequence block by block"));
}

} // namespace

//===- gradient_values_test.cpp - Gradients among the values of a stage ----===//

#include "runtime/cuda/GradientValues.h"

#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::ValueId;

class Gradients : public testing::Test {
protected:
  ValueId value() {
    stage.values.push_back({kernels::DType::F32, {16}});
    return ValueId(stage.values.size()) - 1;
  }
  int slot(program::Role role = program::Role::Residual) {
    stage.slots.push_back({"s" + std::to_string(stage.slots.size()), role, -1, {}});
    return int(stage.slots.size()) - 1;
  }
  ValueId argument(Block &block, int slot) {
    block.arguments.push_back({value(), slot});
    return block.arguments.back().value;
  }
  ValueId add(Block &block, const std::string &id, const std::vector<ValueId> &operands,
              InstructionKind kind = InstructionKind::Kernel) {
    Instruction instruction;
    instruction.id = id;
    instruction.kind = kind;
    instruction.operands = operands;
    instruction.results = {value()};
    block.instructions.push_back(instruction);
    return instruction.results[0];
  }
  void keep(Block &block, ValueId value, int slot) { block.results.push_back({value, slot}); }
  bool isGradient(ValueId value) { return cuda::gradientsOf(stage)[size_t(value)]; }

  program::Stage stage;
};

TEST_F(Gradients, AreWhatBackwardOpsMakeAndLaterStagesSend) {
  Block &forward = stage.chunks[0].forward, &backward = stage.chunks[0].backward;
  int kept = slot();
  ValueId received = add(forward, "recv", {}, InstructionKind::Recv);
  ValueId x = add(forward, "x", {received});
  keep(forward, x, kept);
  ValueId again = argument(backward, kept);
  ValueId recomputed = add(backward, "y", {again});
  ValueId sent = add(backward, "recv", {}, InstructionKind::Recv);
  ValueId gathered = add(backward, "gather", {sent}, InstructionKind::AllGather);
  ValueId made = add(backward, "y.bwd.lhs", {recomputed});
  for (ValueId none : {received, x, again, recomputed})
    EXPECT_FALSE(isGradient(none)) << none;
  for (ValueId gradient : {sent, gathered, made})
    EXPECT_TRUE(isGradient(gradient)) << gradient;
}

/// A split backward recomputes, and keeps the recomputed value beside gradients: only dW is a
/// gradient.
TEST_F(Gradients, WhatBackwardKeepsIsWhatItWas) {
  Block &backward = stage.chunks[0].backward, &weight = stage.chunks[0].weight;
  int kept = slot(), keptGradient = slot(), ofWeight = slot(), sum = slot(program::Role::Gradient);
  ValueId x = add(backward, "x", {});
  ValueId dy = add(backward, "y.bwd.lhs", {x});
  keep(backward, x, kept);
  keep(backward, dy, keptGradient);
  keep(backward, dy, sum);
  ValueId xAgain = argument(weight, kept), dyAgain = argument(weight, keptGradient);
  ValueId dw = add(weight, "y.bwd.rhs", {xAgain, dyAgain});
  keep(weight, dw, ofWeight);
  ValueId parameter = argument(stage.update, sum), late = argument(stage.update, ofWeight);
  EXPECT_FALSE(isGradient(xAgain));
  EXPECT_TRUE(isGradient(dyAgain));
  EXPECT_TRUE(isGradient(late));
  EXPECT_FALSE(isGradient(parameter)); // gradient sums belong to the optimizer
}

/// The next value reads each value twice. A check per path would take 2^200 steps.
TEST_F(Gradients, AreAskedOncePerValue) {
  Block &backward = stage.chunks[0].backward;
  ValueId last = add(backward, "x", {});
  for (int i = 0; i < 200; ++i)
    last = add(backward, "add", {last, last});
  EXPECT_FALSE(isGradient(last));
  ValueId dy = add(backward, "add.bwd.lhs", {last});
  EXPECT_TRUE(isGradient(add(backward, "add", {last, dy})));
}

} // namespace
} // namespace tbc::test

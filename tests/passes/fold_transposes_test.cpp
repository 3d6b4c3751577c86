//===- fold_transposes_test.cpp - Folding transposes keeps all results -----===//

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/Movement.h"
#include "passes/layout/FoldTransposes.h"
#include "passes/layout/LiftSlices.h"
#include "passes/layout/MergeHeads.h"
#include "tests/passes/FoldFixture.h"

#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;

int64_t numTransposes(func::FuncOp function) {
  return llvm::range_size(function.getOps<TransposeOp>());
}

TEST(FoldTransposes, ExamplesMeanTheSameAfterwards) {
  EXPECT_EQ(foldExamples<TransposeOp>("fold_transposes.mlir", foldTransposes), 12);
}

TEST(MergeHeads, ExamplesMeanTheSameAfterwards) {
  EXPECT_EQ(foldExamples<ReshapeOp>("merge_heads.mlir", mergeHeads), 5);
}

TEST(LiftSlices, ExamplesMeanTheSameAfterwards) {
  EXPECT_EQ(foldExamples<ReshapeOp>("lift_slices.mlir", liftSlices), 1);
  EXPECT_EQ(foldExamples<ReshapeOp>("lift_slices.mlir",
                                    [](func::FuncOp function) {
                                      liftSlices(function);
                                      foldTransposes(function);
                                      mergeHeads(function);
                                    }),
            4);
}

std::string listOf(llvm::ArrayRef<int64_t> numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Returns the type of a tensor with these labels; label i has size i + 2.
std::string typeOf(llvm::ArrayRef<int64_t> labels) {
  std::string text = "tensor<";
  for (int64_t label : labels)
    text += std::to_string(label + 2) + "x";
  return text + "f32>";
}

/// Returns labels and a transpose whose result has `labels`.
std::pair<std::vector<int64_t>, std::vector<int64_t>>
randomTranspose(const std::vector<int64_t> &labels, std::mt19937 &random) {
  std::vector<int64_t> permutation(labels.size()), input(labels.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::shuffle(permutation.begin(), permutation.end(), random);
  for (size_t i = 0; i < labels.size(); ++i)
    input[size_t(permutation[i])] = labels[i];
  return {input, permutation};
}

/// Einsums of up to two labels of each role, with all tensors transposed at random.
TEST(FoldTransposes, RandomEinsumsMeanTheSameAfterwards) {
  std::mt19937 random(3);
  int64_t folded = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> lhs, rhs, out;
    int64_t next = 0;
    for (const auto &role :
         {std::vector{&lhs, &rhs, &out}, {&lhs, &rhs}, {&lhs, &out}, {&rhs, &out}})
      for (unsigned n = random() % 3; n > 0; --n, ++next)
        for (auto *labels : role)
          labels->push_back(next);
    for (auto *labels : {&lhs, &rhs, &out})
      std::shuffle(labels->begin(), labels->end(), random);
    auto [a, toLhs] = randomTranspose(lhs, random);
    auto [b, toRhs] = randomTranspose(rhs, random);
    auto [unused, fromOut] = randomTranspose(out, random);
    std::vector<int64_t> y;
    for (int64_t dim : fromOut)
      y.push_back(out[size_t(dim)]);
    std::string text =
        "func.func @model(%a: " + typeOf(a) + ", %b: " + typeOf(b) + ") -> " + typeOf(y) + " {\n";
    auto transpose = [&](const std::string &name, const std::string &of,
                         llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> permutation,
                         llvm::ArrayRef<int64_t> to) {
      text += name + " = tbc.transpose " + of +
              " {permutation = array<i64: " + listOf(permutation) + ">} : (" + typeOf(from) +
              ") -> " + typeOf(to) + "\n";
    };
    if (lhs.empty() || rhs.empty() || out.empty())
      continue;
    transpose("%l", "%a", a, toLhs, lhs);
    transpose("%r", "%b", b, toRhs, rhs);
    text += "%o = tbc.einsum %l, %r {lhs_labels = array<i64: " + listOf(lhs) +
            ">, rhs_labels = array<i64: " + listOf(rhs) +
            ">, out_labels = array<i64: " + listOf(out) + ">} : (" + typeOf(lhs) + ", " +
            typeOf(rhs) + ") -> " + typeOf(out) + "\n";
    transpose("%y", "%o", out, fromOut, y);
    text += "return %y : " + typeOf(y) + "\n}";
    ParsedModule module(text);
    ASSERT_TRUE(module) << module.messages << text;
    SCOPED_TRACE(text);
    folded += foldAndCompare<TransposeOp>(module.function("model"), foldTransposes);
  }
  EXPECT_GT(folded, 100);
}

/// Two layers as PyTorch exports them: x[4, 3] -> logits[4, 5].
const char *const kLinears = R"(
func.func @model(%x: tensor<4x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64},
                 %w0: tensor<2x3xf32> {tbc.role = #tbc.role<param>, tbc.name = "w0"},
                 %w1: tensor<5x2xf32> {tbc.role = #tbc.role<param>, tbc.name = "w1"}) -> tensor<4x5xf32> {
  %t0 = tbc.transpose %w0 {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %h = tbc.einsum %x, %t0 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %g = tbc.tanh %h : tensor<4x2xf32>
  %t1 = tbc.transpose %w1 {permutation = array<i64: 1, 0>} : (tensor<5x2xf32>) -> tensor<2x5xf32>
  %y = tbc.einsum %g, %t1 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<4x2xf32>, tensor<2x5xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
})";

TEST(FoldTransposes, GradientsNeedNoTransposesEither) {
  ParsedModule before(kLinears), after(kLinears);
  ASSERT_TRUE(before) << before.messages;
  foldTransposes(after.function("model"));
  buildStep(before);
  buildStep(after);
  EXPECT_EQ(numTransposes(before.function("train")), 5); // forward, clone in backward, gradients
  EXPECT_EQ(numTransposes(after.function("train")), 0);
  std::vector<Tensor> inputs = trainInputs(before, Arith::Residue61);
  std::vector<Tensor> old = evaluate(before, "train", inputs, Arith::Residue61);
  std::vector<Tensor> now = evaluate(after, "train", inputs, Arith::Residue61);
  ASSERT_EQ(old.size(), 4u); // the loss, its count and two gradients
  ASSERT_EQ(now.size(), 4u);
  for (size_t i = 0; i < old.size(); ++i)
    EXPECT_TRUE(bitwiseEqual(old[i], now[i])) << "result " << i;
}

/// One layer of attention with rotary positions, between linear layers: x[2, 4, 6] -> y[2, 4, 6].
/// The linear layers merge heads and columns.
const char *const kHeads = R"(
func.func @model(%x: tensor<2x4x6xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64},
                 %wq: tensor<6x8xf32> {tbc.role = #tbc.role<param>, tbc.name = "wq"},
                 %wk: tensor<6x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "wk"},
                 %wo: tensor<8x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "wo"},
                 %sink: tensor<2xf32> {tbc.role = #tbc.role<param>, tbc.name = "sink"}) -> tensor<2x4x6xf32> {
  %half = tbc.constant dense<0.5> : tensor<f32> : tensor<f32>
  %table = tbc.broadcast %half {dims = array<i64>} : (tensor<f32>) -> tensor<4x2xf32>
  %mq = tbc.einsum %x, %wq {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x4x6xf32>, tensor<6x8xf32>) -> tensor<2x4x8xf32>
  %mk = tbc.einsum %x, %wk {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x4x6xf32>, tensor<6x4xf32>) -> tensor<2x4x4xf32>
  %q = tbc.reshape %mq {sizes = array<i64: 2, 4, 2, 4>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x2x4xf32>
  %k = tbc.reshape %mk {sizes = array<i64: 2, 4, 1, 4>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %v = tbc.reshape %mk {sizes = array<i64: 2, 4, 1, 4>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %tq = tbc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x2x4xf32>) -> tensor<2x2x4x4xf32>
  %tk = tbc.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x1x4xf32>) -> tensor<2x1x4x4xf32>
  %tv = tbc.transpose %v {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x1x4xf32>) -> tensor<2x1x4x4xf32>
  %rq = tbc.rotary %tq, %table, %table {inverse = false} : (tensor<2x2x4x4xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<2x2x4x4xf32>
  %rk = tbc.rotary %tk, %table, %table {inverse = false} : (tensor<2x1x4x4xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<2x1x4x4xf32>
  %o, %m, %l = tbc.attention %rq, %rk, %tv, %sink {scale = 0.5 : f64, causal = true, sink = true} : (tensor<2x2x4x4xf32>, tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>, tensor<2xf32>) -> (tensor<2x2x4x4xf32>, tensor<2x2x4xf32>, tensor<2x2x4xf32>)
  %to = tbc.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x2x4x4xf32>) -> tensor<2x4x2x4xf32>
  %mo = tbc.reshape %to {sizes = array<i64: 2, 4, 2, 4>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>} : (tensor<2x4x2x4xf32>) -> tensor<2x4x8xf32>
  %y = tbc.einsum %mo, %wo {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x4x8xf32>, tensor<8x6xf32>) -> tensor<2x4x6xf32>
  return %y : tensor<2x4x6xf32>
})";

TEST(FoldTransposes, HeadsNeedNoTransposes) {
  ParsedModule before(kHeads), after(kHeads);
  ASSERT_TRUE(before) << before.messages;
  foldTransposes(after.function("model"));
  mergeHeads(after.function("model"));
  EXPECT_EQ(numTransposes(after.function("model")), 0);
  EXPECT_TRUE(after.function("model").getOps<ReshapeOp>().empty());
  buildStep(before);
  buildStep(after);
  EXPECT_EQ(numTransposes(before.function("train")), 8);
  EXPECT_EQ(numTransposes(after.function("train")), 1); // of [b, s, h], for the sink's gradient
  std::vector<Tensor> inputs = trainInputs(before, Arith::Residue61);
  std::vector<Tensor> old = evaluate(before, "train", inputs, Arith::Residue61);
  std::vector<Tensor> now = evaluate(after, "train", inputs, Arith::Residue61);
  ASSERT_EQ(old.size(), 6u); // the loss, its count and four gradients
  ASSERT_EQ(now.size(), 6u);
  for (size_t i = 0; i < old.size(); ++i)
    EXPECT_TRUE(bitwiseEqual(old[i], now[i])) << "result " << i;
}

} // namespace
} // namespace tbc

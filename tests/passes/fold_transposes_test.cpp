//===- fold_transposes_test.cpp - Folding transposes keeps all results -----===//

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/Movement.h"
#include "passes/layout/FoldTransposes.h"
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
  EXPECT_EQ(foldExamples<TransposeOp>("fold_transposes.mlir", foldTransposes), 7);
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

} // namespace
} // namespace tbc

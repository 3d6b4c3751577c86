//===- packed_attention_test.cpp - Attention of the columns of one tensor ----===//
//
// A packed op does what attention does on copies of the columns. The bounds of its rounding stand
// in attention_test.cpp; here operands are small, and a wrong column would show as an error of 0.1.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/PackedAttention.h"
#include "tests/runtime/cpu/NativeCase.h"

using namespace tbc;
using kernels::DType;
using kernels::Tensor;

namespace {

struct Sizes {
  int64_t batch, heads, keyHeads, tokens, width, valueWidth;

  int64_t columns() const { return (heads + keyHeads) * width + keyHeads * valueWidth; }
};

const Tensor &one() {
  static const Tensor number = Tensor::fromDoubles({DType::F32, {}}, kernels::Arith::Native, {1});
  return number;
}

kernels::Attrs attrsOf(const Sizes &n, bool isMasked) {
  return {{"scale", 1 / std::sqrt(double(n.width))},
          {"causal", true},
          {"key_mask", isMasked},
          {"sink", isMasked},
          {"soft_cap", isMasked ? 0.5 : 0.0},
          {"biases", std::string(isMasked ? "hst" : "")},
          {"heads", n.heads},
          {"key_heads", n.keyHeads}};
}

std::vector<Tensor> masksOf(const Sizes &n, bool isMasked, DType dtype) {
  if (!isMasked)
    return {};
  return {test::randomFloats({dtype, {n.heads, n.tokens, n.tokens}}, 40),
          test::randomFloats({dtype, {n.heads}}, 50),
          test::randomInts({DType::Bool, {n.batch, n.tokens}}, 31, 0, 2)};
}

/// A packed case, and the same op on the copied columns.
struct Pair {
  test::NativeCase packed, plain;
};

Tensor columnsOf(const Tensor &x, int64_t first, int64_t count,
                 kernels::Arith arith = kernels::Arith::Native) {
  kernels::Attrs attrs{{"dim", int64_t(2)}, {"offset", first}, {"size", count}};
  return kernels::findKernel("slice")({arith}, attrs, {x},
                                      {{x.dtype(), {x.shape()[0], x.shape()[1], count}}})[0];
}

/// `before` and `behind`: the operands beside x.
Pair pairOf(const std::string &op, const Sizes &n, bool isMasked, const Tensor &x,
            std::vector<Tensor> before, std::vector<Tensor> behind, cpu::Types results) {
  Pair pair;
  pair.packed.op = "packed_" + op, pair.plain.op = op;
  pair.packed.attrs = pair.plain.attrs = attrsOf(n, isMasked);
  pair.packed.attrs.set("packed_width", n.width);
  pair.packed.attrs.set("token_major", std::string("O"));
  pair.plain.attrs.set("token_major", std::string("QKVO"));
  pair.packed.operands = before;
  pair.packed.operands.push_back(x);
  pair.plain.operands = std::move(before);
  int64_t first = 0;
  for (int64_t count : {n.heads * n.width, n.keyHeads * n.width, n.keyHeads * n.valueWidth}) {
    pair.plain.operands.push_back(columnsOf(x, first, count));
    first += count;
  }
  for (test::NativeCase *made : {&pair.packed, &pair.plain})
    made->operands.insert(made->operands.end(), behind.begin(), behind.end());
  pair.packed.results = pair.plain.results = std::move(results);
  return pair;
}

/// Expects equal bits of the two reference kernels, and the native kernel near them.
std::vector<Tensor> check(const Pair &pair, double slack, const std::string &what) {
  std::vector<Tensor> native = test::runNative(pair.packed), exact = test::runExact(pair.packed),
                      copied = test::runExact(pair.plain);
  EXPECT_EQ(native.size(), exact.size()) << what;
  if (exact.size() == copied.size())
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_EQ(exact[i].toDoubles(), copied[i].toDoubles()) << what << " result " << i;
  for (size_t i = 0; i < native.size(); ++i)
    test::expectClose(native[i], exact[i], one(), slack, what + " result " + std::to_string(i));
  return native;
}

void checkBothWays(const Sizes &n, bool isMasked, DType dtype, const std::string &what) {
  const Tensor x = test::randomFloats({dtype, {n.batch, n.tokens, n.columns()}}, 1);
  const kernels::Shape o = {n.batch, n.tokens, n.heads * n.valueWidth},
                       rows = {n.batch, n.heads, n.tokens};
  const double slack = dtype == DType::F32 ? 1e-4 : 0.05;
  std::vector<Tensor> forward =
      check(pairOf("attention", n, isMasked, x, {}, masksOf(n, isMasked, dtype),
                   {{dtype, o}, {DType::F32, rows}, {DType::F32, rows}}),
            slack, what);
  ASSERT_EQ(forward.size(), 3u) << what;
  std::vector<Tensor> behind = forward;
  for (const Tensor &mask : masksOf(n, isMasked, dtype))
    behind.push_back(mask);
  Pair backward = pairOf("attention_grad", n, isMasked, x,
                         {test::randomFloats({dtype, o}, 4, -0.1, 0.1)}, behind, {});
  backward.packed.results = {{dtype, x.shape()}};
  for (size_t i = 0; i < 3; ++i)
    backward.plain.results.push_back({dtype, backward.plain.operands[1 + i].shape()});
  std::vector<Tensor> gradient = check(backward, slack, what + " gradient");
  ASSERT_EQ(gradient.size(), 1u) << what;
  const Tensor exact = test::runExact(backward.packed)[0];
  std::vector<Tensor> parts = test::runExact(backward.plain);
  int64_t first = 0;
  for (const Tensor &part : parts) {
    EXPECT_EQ(columnsOf(exact, first, part.shape()[2], kernels::Arith::F64).toDoubles(),
              part.toDoubles())
        << what;
    first += part.shape()[2];
  }
}

TEST(PackedAttention, EqualsAttentionOfCopiedColumns) {
  for (const Sizes &n : std::vector<Sizes>{{2, 2, 2, 5, 8, 8},
                                           {1, 1, 1, 1, 1, 1},
                                           {1, 6, 2, 7, 5, 3},
                                           {2, 2, 1, 130, 16, 24},
                                           {1, 3, 3, 300, 8, 8}})
    for (bool isMasked : {false, true})
      for (DType dtype : {DType::F32, DType::BF16})
        checkBothWays(n, isMasked, dtype,
                      std::to_string(n.tokens) + " tokens, " + std::string(name(dtype)) +
                          (isMasked ? ", masked" : ""));
}

TEST(PackedAttention, KnowsThePlacesOfItsParts) {
  const kernels::PackedAttention forward("packed_attention"), gradient("packed_attention_grad");
  EXPECT_EQ(forward.operands(std::vector<int>{7, 8}), (std::vector<int>{7, 7, 7, 8}));
  EXPECT_EQ(forward.results(std::vector<int>{1, 2, 3}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(gradient.operands(std::vector<int>{6, 7, 8}), (std::vector<int>{6, 7, 7, 7, 8}));
  EXPECT_EQ(gradient.results(std::vector<int>{5}), (std::vector<int>{5, 5, 5}));
  for (const kernels::PackedAttention &op : {forward, gradient}) {
    const std::vector<int> packed = {0, 1, 2, 3}, plain = op.operands(packed);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_EQ(op.operandOf(int(i)), plain[i]);
  }
  EXPECT_EQ(gradient.resultOf(2), 0);
  EXPECT_EQ(forward.resultOf(2), 2);
}

} // namespace

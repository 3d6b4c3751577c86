//===- experts_test.cpp - Native experts and rotary against the reference -----===//

#include "tests/runtime/cpu/NativeCase.h"

#include <random>

using namespace tbc;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;

namespace {

/// Returns router weights with `top` nonzero entries per token. An expert may get no tokens.
Tensor routes(DType dtype, const Shape &shape, int64_t top, unsigned seed) {
  std::mt19937 random(seed);
  int64_t e = shape.back();
  std::vector<double> values(size_t(kernels::numElements(shape)), 0);
  for (size_t row = 0; row < values.size(); row += size_t(e))
    for (int64_t k = 0; k < top; ++k)
      values[row + random() % size_t(e)] = 0.25 + double(random() % 64) / 64;
  return values.empty() ? Tensor::zeros({dtype, shape}, kernels::Arith::Native)
                        : Tensor::fromDoubles({dtype, shape}, kernels::Arith::Native, values);
}

/// Compares every result with the exact one.
///
/// - No path from an operand to a result has more than `roundings` roundings.
/// - With positive operands relu is the identity, so a result is the sum of the magnitudes of its
///   terms.
/// - Other activations a have |a(z)| <= |z| and |a'|, |a''| < 1.2. So an error of z, at most
///   `largest` in magnitude, is also an error of a'.
void check(const test::NativeCase &testCase, double roundings, double largest,
           const std::string &what) {
  std::vector<Tensor> native = test::runNative(testCase), exact = test::runExact(testCase);
  test::NativeCase positive = test::withMagnitudes(testCase);
  bool isSmooth =
      positive.attrs.has("activation") && positive.attrs.getString("activation") != "relu";
  if (isSmooth)
    positive.attrs.set("activation", std::string("relu"));
  std::vector<Tensor> magnitudes = kernels::findKernel(testCase.op)(
      {kernels::Arith::F64}, positive.attrs,
      [&] {
        std::vector<Tensor> wide;
        for (const Tensor &operand : positive.operands)
          wide.push_back(
              Tensor::fromDoubles(operand.type(), kernels::Arith::F64, operand.toDoubles()));
        return wide;
      }(),
      testCase.results);
  ASSERT_EQ(native.size(), exact.size()) << what;
  for (size_t r = 0; r < native.size(); ++r)
    test::expectClose(native[r], exact[r], magnitudes[r],
                      roundings * 0x1p-24 * 1.01 * (isSmooth ? 1.2 * (1 + largest) : 1),
                      what + " result " + std::to_string(r));
}

struct Sizes {
  int64_t t, h, e, f, o, top;
};

void checkRouted(const Sizes &s, const std::string &activation, bool isGated) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    auto floats = [&](const Shape &shape, unsigned seed) {
      Tensor tensor = test::randomFloats({dtype, shape}, seed);
      return tensor;
    };
    int64_t width = isGated ? 2 * s.f : s.f;
    std::vector<Tensor> operands = {floats({s.t, s.h}, 1), routes(dtype, {s.t, s.e}, s.top, 2),
                                    floats({s.e, width, s.h}, 3), floats({s.e, s.o, s.f}, 4)};
    kernels::Attrs attrs{{"activation", activation}, {"gated", isGated}, {"top", s.top}};
    std::string what = activation + (isGated ? " gated " : " ") + std::string(name(dtype)) +
                       " t=" + std::to_string(s.t) + " e=" + std::to_string(s.e);
    double roundings = double(s.h + s.f + s.o + s.e + s.t) + 20;
    // The largest magnitude of both layers, and of the second factor of a gate.
    double largest = double(s.h) * (isGated ? double(s.h) : 1);
    check({"routed_experts", attrs, operands, {{dtype, {s.t, s.o}}}}, roundings, largest, what);
    operands.insert(operands.begin(), floats({s.t, s.o}, 5));
    test::NativeCase gradient{"routed_experts_grad", attrs, operands, {}};
    for (size_t i = 1; i < operands.size(); ++i)
      gradient.results.push_back(operands[i].type());
    check(gradient, roundings, largest, what + " gradient");
  }
}

TEST(NativeExperts, RoutedExperts) {
  for (const std::string activation : {"relu", "silu", "gelu", "gelu_tanh"})
    for (bool isGated : {false, true})
      checkRouted({37, 9, 4, 19, 11, 2}, activation, isGated);
}

TEST(NativeExperts, ManyRowsAndTiles) {
  checkRouted({150, 8, 3, 270, 10, 2}, "relu", true);
  checkRouted({1200, 3, 3, 2, 4, 3}, "relu", false); // more rows than one pass holds
}

TEST(NativeExperts, NastySizes) {
  for (int64_t t : {0, 1})
    for (int64_t e : {1, 5})
      checkRouted({t, 1, e, 1, 1, 1}, "relu", true);
}

void checkDealt(int64_t g, int64_t t, int64_t e, int64_t c, int64_t h) {
  for (DType dtype : {DType::F32, DType::BF16})
    for (bool isWeighted : {false, true}) {
      Tensor weights = routes(dtype, {g, t, e}, 2, 1);
      Tensor tokens = test::randomFloats({dtype, {g, t, h}}, 2);
      Tensor slots = test::randomFloats({dtype, {g, e, c, h}}, 3);
      kernels::Attrs attrs{{"capacity", c}, {"weighted", isWeighted}};
      check({"dispatch", attrs, {tokens, weights}, {slots.type()}}, 2, 1, "dispatch");
      check({"combine", attrs, {slots, weights}, {tokens.type()}}, double(e) + 2, 1, "combine");
      check({"combine_weights_grad", {}, {tokens, slots, weights}, {weights.type()}}, double(h) + 2,
            1, "combine_weights_grad");
    }
}

TEST(NativeExperts, SlotsOfTokens) {
  checkDealt(2, 13, 3, 5, 17); // tokens beyond the capacity are dropped
  checkDealt(1, 6, 4, 12, 3);  // some slots stay empty
  checkDealt(3, 700, 2, 900, 40);
  checkDealt(1, 1, 1, 1, 1);
  checkDealt(2, 0, 3, 2, 4);
  checkDealt(2, 4, 3, 0, 4);
}

TEST(NativeRotary, AgainstTheReference) {
  struct Case {
    Shape x, table;
  };
  for (const Case &shapes :
       {Case{{2, 3, 7, 10}, {7, 5}}, Case{{3, 2, 5, 64}, {3, 5, 32}}, Case{{4, 2}, {4, 1}},
        Case{{0, 4, 6}, {4, 3}}, Case{{2, 5, 3, 6}, {2, 3, 3}}, Case{{40, 90, 80}, {90, 40}}})
    for (bool isInverse : {false, true})
      for (DType dtype : {DType::F32, DType::BF16}) {
        test::NativeCase testCase{"rotary",
                                  {{"inverse", isInverse}},
                                  {test::randomFloats({dtype, shapes.x}, 1),
                                   test::randomFloats({dtype, shapes.table}, 2),
                                   test::randomFloats({dtype, shapes.table}, 3)},
                                  {{dtype, shapes.x}}};
        std::vector<Tensor> native = test::runNative(testCase);
        ASSERT_EQ(native.size(), 1u);
        // Two products of numbers below 1, and their sum.
        test::expectClose(native[0], test::runExact(testCase)[0],
                          Tensor::fromDoubles({DType::F32, {}}, kernels::Arith::Native, {2.0}),
                          3 * 0x1p-24, "rotary");
      }
}

} // namespace

//===- pooling_test.cpp - Native pooling against the reference ----------------===//

#include "tests/runtime/cpu/NativeCase.h"

#include <cmath>
#include <limits>
#include <random>

using namespace tbc;
using kernels::DType;
using kernels::Shape;

namespace {

using Ints = std::vector<int64_t>;

struct Geometry {
  int64_t samples, channels;
  Shape input;
  Ints kernel, strides, pads, dilations;

  Shape with(const Shape &spatial) const {
    Shape shape{samples, channels};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return shape;
  }
  Shape x() const { return with(input); }
  Shape y() const {
    Shape sizes;
    for (size_t d = 0; d < input.size(); ++d)
      sizes.push_back(
          (input[d] + pads[d] + pads[input.size() + d] - dilations[d] * (kernel[d] - 1) - 1) /
              strides[d] +
          1);
    return with(sizes);
  }
  kernels::Attrs attrs() const {
    return {{"kernel", kernel}, {"strides", strides}, {"pads", pads}, {"dilations", dilations}};
  }
};

/// `terms`: the largest number of products in a sum, and of roundings per product.
void check(test::NativeCase testCase, int64_t terms) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    for (kernels::Tensor &operand : testCase.operands)
      operand = test::randomFloats({dtype, operand.shape()}, unsigned(operand.numElements()));
    testCase.results[0].dtype = dtype;
    std::vector<kernels::Tensor> native = test::runNative(testCase);
    ASSERT_EQ(native.size(), 1u);
    test::NativeCase magnitudes = testCase;
    // The largest element must stay the same.
    if (testCase.op == "max_pool_grad")
      magnitudes.operands[1] =
          test::withMagnitudes({"", {}, {testCase.operands[1]}, {}}).operands[0];
    else
      magnitudes = test::withMagnitudes(testCase);
    test::expectClose(native[0], test::runExact(testCase)[0], test::runExact(magnitudes)[0],
                      double(terms + 2) * 0x1p-24 * 1.01, testCase.op);
  }
}

kernels::Tensor floats(const Shape &shape) {
  return kernels::Tensor::zeros({DType::F32, shape}, kernels::Arith::Native);
}

void checkAll(const Geometry &g) {
  int64_t taps = kernels::numElements(g.kernel);
  test::NativeCase testCase{"max_pool", g.attrs(), {floats(g.x())}, {{DType::F32, g.y()}}};
  check(testCase, 0);
  testCase = {"max_pool_grad", g.attrs(), {floats(g.x()), floats(g.y())}, {{DType::F32, g.x()}}};
  check(testCase, taps);
  for (bool countsPads : {false, true}) {
    kernels::Attrs attrs = g.attrs();
    attrs.set("count_include_pad", countsPads);
    check({"avg_pool", attrs, {floats(g.x())}, {{DType::F32, g.y()}}}, taps);
    check({"avg_pool_grad", attrs, {floats(g.y())}, {{DType::F32, g.x()}}}, taps);
  }
}

TEST(NativePooling, Geometries) {
  checkAll({2, 5, {20, 21}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}});
  checkAll({2, 3, {9, 8}, {2, 4}, {1, 3}, {0, 2, 1, 3}, {1, 1}});
  checkAll({1, 4, {11, 13}, {3, 2}, {2, 1}, {2, 1, 0, 1}, {2, 3}});
  checkAll({3, 2, {17}, {4}, {2}, {1, 2}, {1}});
  checkAll({2, 2, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0, 0, 1, 1}, {1, 1, 1}});
  checkAll({2, 600, {7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}, {1, 1}}); // the whole plane
}

TEST(NativePooling, NastySizes) {
  checkAll({1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
  checkAll({0, 3, {4, 4}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}});
  checkAll({2, 0, {4, 4}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}});
  checkAll({1, 2, {4, 4}, {2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}}); // x is not read completely
}

TEST(NativePooling, RandomGeometries) {
  std::mt19937 random(5);
  auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  for (int round = 0; round < 40; ++round) {
    Geometry g{draw(1, 3), draw(1, 4), {}, {}, {}, {}, {}};
    Ints high;
    for (int64_t d = draw(1, 3); d-- > 0;) {
      g.kernel.push_back(draw(1, 4));
      g.strides.push_back(draw(1, 3));
      g.dilations.push_back(1);
      // A window always has a valid element, because pads are smaller than the window.
      g.pads.push_back(draw(0, g.kernel.back() - 1));
      high.push_back(draw(0, g.kernel.back() - 1));
      g.input.push_back(g.kernel.back() + draw(0, 7));
    }
    g.pads.insert(g.pads.end(), high.begin(), high.end());
    checkAll(g);
  }
}

TEST(NativePooling, EqualsNanAndInfinities) {
  // The first of equal elements gets the gradient, or the last NaN.
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<double> values = {1, 1, -0.0, 0.0, nan, 2, 2, nan, -inf, -inf, inf, inf};
  kernels::Tensor x =
      kernels::Tensor::fromDoubles({DType::F32, {1, 1, 12}}, kernels::Arith::Native, values);
  for (int64_t size : {2, 3}) {
    kernels::Attrs attrs{{"kernel", Ints{size}}, {"strides", Ints{1}}, {"pads", Ints{1, 1}}};
    Shape shape{1, 1, 12 + 2 - size + 1};
    kernels::Tensor dy = test::randomFloats({DType::F32, shape}, 1);
    for (const test::NativeCase &testCase :
         {test::NativeCase{"max_pool", attrs, {x}, {{DType::F32, shape}}},
          test::NativeCase{"max_pool_grad", attrs, {x, dy}, {{DType::F32, {1, 1, 12}}}}}) {
      auto expected = kernels::findKernel(testCase.op)({kernels::Arith::Native}, attrs,
                                                       testCase.operands, testCase.results);
      auto native = test::runNative(testCase);
      ASSERT_EQ(native.size(), 1u);
      std::vector<double> want = expected[0].toDoubles(), got = native[0].toDoubles();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(std::isnan(want[i])
                        ? std::isnan(got[i])
                        : std::fabs(got[i] - want[i]) <= 3 * 0x1p-24 || got[i] == want[i])
            << testCase.op << " element " << i << ": " << got[i] << ", not " << want[i];
    }
  }
}

TEST(NativePooling, WindowsInThePaddingAreLeftToTheReference) {
  kernels::Attrs attrs{{"kernel", Ints{2}}, {"strides", Ints{1}}, {"pads", Ints{2, 0}}};
  EXPECT_FALSE(cpu::findNativeKernel("max_pool", attrs, {{DType::F32, {1, 1, 3}}},
                                     {{DType::F32, {1, 1, 4}}}));
}

} // namespace

//===- convolution_test.cpp - Native convolution against the reference --------===//

#include "tests/runtime/cpu/NativeCase.h"

#include <random>

using namespace tbc;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;

namespace {

using Ints = std::vector<int64_t>;

struct Geometry {
  int64_t samples, inChannels, outChannels, groups;
  Shape input, window;
  Ints strides, pads, dilations;

  Shape output() const {
    Shape sizes;
    for (size_t d = 0; d < input.size(); ++d)
      sizes.push_back(
          (input[d] + pads[d] + pads[input.size() + d] - dilations[d] * (window[d] - 1) - 1) /
              strides[d] +
          1);
    return sizes;
  }
  Shape x() const { return with({samples, inChannels}, input); }
  Shape w() const { return with({outChannels, inChannels / groups}, window); }
  Shape y() const { return with({samples, outChannels}, output()); }
  kernels::Attrs attrs() const {
    return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
  }

private:
  static Shape with(Shape shape, const Shape &rest) {
    shape.insert(shape.end(), rest.begin(), rest.end());
    return shape;
  }
};

/// Returns a geometry without strides, pads and dilations.
Geometry plain(int64_t samples, int64_t in, int64_t out, const Shape &input, const Shape &window) {
  size_t rank = input.size();
  return {samples, in, out, 1, input, window, Ints(rank, 1), Ints(2 * rank, 0), Ints(rank, 1)};
}

/// Sums `terms` products in f32 in any order, samples in parts. Each term is rounded once per later
/// addition: a relative error of (1 + u)^terms - 1. Source: Higham, Accuracy and Stability of
/// Numerical Algorithms, section 3.1.
void check(const std::string &op, const Geometry &geometry, const Shape &first, const Shape &second,
           const Shape &result, int64_t terms) {
  for (auto [input, output] :
       {std::pair(DType::F32, DType::F32), {DType::BF16, DType::BF16}, {DType::BF16, DType::F32}}) {
    test::NativeCase testCase;
    testCase.op = op;
    testCase.attrs = geometry.attrs();
    testCase.operands = {test::randomFloats({input, first}, 1),
                         test::randomFloats({input, second}, 2)};
    testCase.results = {{output, result}};
    std::string what = op + " " + toString(TensorType{input, first}) + ", " +
                       toString(TensorType{input, second}) + " -> " +
                       toString(TensorType{output, result});
    std::vector<kernels::Tensor> native = test::runNative(testCase);
    ASSERT_EQ(native.size(), 1u) << what;
    test::expectClose(native[0], test::runExact(testCase)[0],
                      test::runExact(test::withMagnitudes(testCase))[0],
                      double(terms + 1) * 0x1p-24 * 1.01, what);
  }
}

void checkAll(const Geometry &g) {
  int64_t taps = kernels::numElements(g.window);
  check("conv", g, g.x(), g.w(), g.y(), g.inChannels / g.groups * taps);
  check("conv_grad_input", g, g.y(), g.w(), g.x(), g.outChannels / g.groups * taps);
  check("conv_grad_weight", g, g.x(), g.y(), g.w(), g.samples * kernels::numElements(g.output()));
}

TEST(NativeConvolution, LayersOfAResidualNet) {
  Geometry first = plain(2, 3, 16, {21, 21}, {7, 7});
  first.strides = {2, 2}, first.pads = {3, 3, 3, 3};
  checkAll(first);
  Geometry middle = plain(3, 16, 24, {14, 14}, {3, 3});
  middle.pads = {1, 1, 1, 1};
  checkAll(middle);
  middle.strides = {2, 2};
  checkAll(middle);
  checkAll(plain(2, 32, 16, {7, 7}, {1, 1}));
  checkAll(plain(2, 8, 12, {24, 24}, {1, 1})); // pointwise, many positions
  Geometry shortcut = plain(2, 16, 40, {9, 9}, {1, 1});
  shortcut.strides = {2, 2};
  checkAll(shortcut);
}

TEST(NativeConvolution, GroupsOfChannels) {
  Geometry grouped = plain(2, 12, 18, {9, 8}, {3, 3});
  for (int64_t groups : {2, 3, 6}) {
    grouped.groups = groups;
    checkAll(grouped);
  }
  Geometry depthwise = plain(2, 20, 20, {9, 9}, {3, 3});
  depthwise.groups = 20, depthwise.pads = {1, 1, 1, 1};
  checkAll(depthwise);
  depthwise.outChannels = 40; // two filters per channel
  checkAll(depthwise);
}

TEST(NativeConvolution, PadsStridesAndDilations) {
  Geometry uneven = plain(2, 5, 7, {11, 6}, {3, 2});
  uneven.pads = {2, 0, 1, 1}; // low, low, high, high
  uneven.strides = {2, 3};
  checkAll(uneven);
  Geometry dilated = plain(1, 6, 4, {15, 13}, {3, 3});
  dilated.dilations = {2, 3};
  checkAll(dilated);
  dilated.pads = {4, 4, 4, 4}, dilated.strides = {3, 2};
  checkAll(dilated);
  Geometry left = plain(2, 4, 4, {8, 8}, {2, 2}); // the last row and column are not read
  left.strides = {3, 3};
  checkAll(left);
}

TEST(NativeConvolution, SingleTapsThatLeaveElementsOut) {
  Geometry g = plain(3, 8, 12, {10, 9}, {1, 1});
  g.strides = {2, 3};
  checkAll(g);
  g.input = {9, 7}; // the last rows and columns are read, and no whole stride is behind them
  checkAll(g);
  g.pads = {0, 0, 3, 1}; // the last positions read pads
  checkAll(g);
  g.pads = {0, 2, 0, 0};
  checkAll(g);
  g.pads = {0, 0, 0, 0}, g.input = {9, 8}, g.strides = {1, 4}, g.dilations = {2, 5}, g.groups = 4;
  checkAll(g);
  Geometry corner = plain(2, 5, 3, {4, 4}, {1, 1}); // one position
  corner.strides = {9, 4};
  checkAll(corner);
  Geometry line = plain(4, 6, 6, {15}, {1}), volume = plain(2, 3, 5, {6, 4, 9}, {1, 1, 1});
  line.strides = {3}, volume.strides = {2, 1, 3};
  checkAll(line);
  checkAll(volume);
  Geometry pieces = plain(3, 280, 270, {14, 12}, {1, 1});
  pieces.strides = {2, 2};
  checkAll(pieces);
}

TEST(NativeConvolution, OneAndThreeSpatialDims) {
  Geometry line = plain(3, 8, 10, {33}, {5});
  line.pads = {2, 2};
  checkAll(line);
  line.strides = {2}, line.dilations = {3}, line.groups = 2;
  checkAll(line);
  Geometry volume = plain(2, 4, 6, {5, 6, 7}, {3, 2, 3});
  volume.pads = {1, 0, 1, 1, 1, 1};
  checkAll(volume);
}

TEST(NativeConvolution, NastySizes) {
  for (int64_t samples : {0, 1, 5})
    for (int64_t in : {0, 1, 3})
      for (int64_t out : {0, 1, 17})
        checkAll(plain(samples, in, out, {4, 3}, {2, 3}));
  checkAll(plain(1, 1, 1, {1, 1}, {1, 1}));
  checkAll(plain(1, 9, 9, {3, 3}, {3, 3})); // one position
}

TEST(NativeConvolution, ManyPieces) {
  // Blocks of samples and channels with smaller last blocks.
  Geometry deep = plain(5, 260, 272, {5, 5}, {3, 3});
  deep.pads = {1, 1, 1, 1};
  checkAll(deep);
  checkAll(plain(3, 40, 260, {12, 12}, {2, 2}));
  checkAll(plain(3, 260, 40, {12, 12}, {2, 2}));
  Geometry grouped = plain(3, 70, 140, {12, 12}, {3, 3});
  grouped.groups = 35;
  checkAll(grouped);
}

TEST(NativeConvolution, RandomGeometries) {
  std::mt19937 random(11);
  auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  for (int round = 0; round < 40; ++round) {
    auto rank = size_t(draw(1, 3));
    int64_t groups = draw(1, 3);
    Geometry g{draw(1, 4), groups * draw(1, 9), groups * draw(1, 9), groups, {}, {}, {}, {}, {}};
    Ints high;
    for (size_t d = 0; d < rank; ++d) {
      g.window.push_back(draw(1, 3));
      g.dilations.push_back(draw(1, 2));
      g.strides.push_back(draw(1, 3));
      g.pads.push_back(draw(0, 2));
      high.push_back(draw(0, 2));
      int64_t reach = g.dilations[d] * (g.window[d] - 1) + 1;
      g.input.push_back(std::max<int64_t>(1, reach - g.pads[d] - high[d]) + draw(0, 6));
    }
    g.pads.insert(g.pads.end(), high.begin(), high.end());
    checkAll(g);
  }
}

} // namespace

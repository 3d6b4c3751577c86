//===- signal_test.cpp - Transforms of signals, moved windows -----------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>
#include <complex>
#include <numeric>

using namespace tbc;
using namespace tbc::test;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

namespace {

MATCHER(IsNear, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-5 * (1 + std::abs(std::get<1>(arg)));
}

/// Frames of 5 in steps of 3 of two signals of 12: the last element is in none.
TEST(Stft, IsTheTransformOfWindowedFrames) {
  ModelBuilder b(22);
  b.input("x", {"batch", "12"});
  b.ints("step", {}, {3});
  b.floats("window", {5}, {1, 2, 3, 2, 0.5});
  b.node("STFT", {"x", "step", "window"}, {"y"});
  b.output("y");
  ModelRunner runner;
  std::vector<double> result = runner.run(b), expected;
  EXPECT_TRUE(runner.model->parameters.empty()); // windows are not trained
  EXPECT_EQ(runner.shape, (kernels::Shape{2, 3, 3, 2}));
  const double window[] = {1, 2, 3, 2, 0.5};
  for (int n = 0; n < 2; ++n)
    for (int frame = 0; frame < 3; ++frame)
      for (int k = 0; k < 3; ++k) {
        std::complex<double> sum = 0;
        for (int i = 0; i < 5; ++i)
          sum += window[i] * (12 * n + 3 * frame + i) * std::polar(1.0, -2 * M_PI * i * k / 5);
        expected.push_back(sum.real());
        expected.push_back(sum.imag());
      }
  EXPECT_THAT(result, Pointwise(IsNear(), expected));
}

TEST(Stft, FramesLongerThanTheSignalAreErrors) {
  ModelBuilder b(22);
  b.input("x", {"batch", "4"});
  b.ints("step", {}, {1});
  b.floats("window", {5}, {1, 1, 1, 1, 1});
  b.node("STFT", {"x", "step", "window"}, {"y"}, "frames");
  b.output("y");
  EXPECT_THAT(
      importError(b.bytes()),
      HasSubstr("node 'frames' (STFT): takes frames of 5 in steps of 1 from a signal of 4"));
}

/// Offsets of whole elements move the windows; a convolution of a moved image is the same.
TEST(DeformConv, OffsetsMoveTheWindows) {
  std::vector<double> image(2 * 2 * 4 * 5);
  std::iota(image.begin(), image.end(), 1);
  auto build = [&](double dy, double dx) {
    ModelBuilder b(22);
    b.input("x", {"batch", "2", "4", "5"});
    b.floats("w", {3, 2, 2, 2}, [] {
      std::vector<float> w(24);
      std::iota(w.begin(), w.end(), -7.0F);
      return w;
    }());
    std::vector<float> offsets;
    for (int tap = 0; tap < 4; ++tap)
      for (double by : {dy, dx})
        offsets.insert(offsets.end(), 3 * 4, float(by));
    b.floats("one", {1, 8, 3, 4}, offsets);
    b.ints("shape", {4}, {2, 8, 3, 4});
    // One offset for both samples.
    b.node("Shape", {"x"}, {"sizes"});
    b.ints("zero", {1}, {0});
    b.ints("first", {1}, {1});
    b.node("Slice", {"sizes", "zero", "first"}, {"batch"});
    b.ints("rest", {3}, {8, 3, 4});
    ModelBuilder::attr(b.node("Concat", {"batch", "rest"}, {"wide"}), "axis", int64_t(0));
    b.node("Expand", {"one", "wide"}, {"offsets"});
    b.node("DeformConv", {"x", "w", "offsets"}, {"y"});
    b.output("y");
    ModelRunner runner;
    runner.options.constants = {"one"};
    runner.inputs["x"] = image;
    return runner.run(b);
  };
  std::vector<double> plain = build(0, 0), right = build(0, 1), down = build(1, 0),
                      half = build(0, 0.5);
  ModelBuilder conv(22);
  conv.input("x", {"batch", "2", "4", "5"});
  std::vector<float> w(24);
  std::iota(w.begin(), w.end(), -7.0F);
  conv.floats("w", {3, 2, 2, 2}, w);
  conv.node("Conv", {"x", "w"}, {"y"});
  conv.output("y");
  ModelRunner runner;
  runner.inputs["x"] = image;
  EXPECT_THAT(plain, Pointwise(IsNear(), runner.run(conv)));
  // [2, 3, 3, 4]: the window to the right at column c is the one at column c + 1.
  for (size_t row = 0; row < 2 * 3 * 3; ++row)
    for (size_t column = 0; column < 3; ++column) {
      EXPECT_NEAR(right[row * 4 + column], plain[row * 4 + column + 1], 1e-4);
      EXPECT_NEAR(half[row * 4 + column],
                  (plain[row * 4 + column] + plain[row * 4 + column + 1]) / 2, 1e-4);
    }
  for (size_t plane = 0; plane < 6; ++plane)
    for (size_t at = 0; at < 2 * 4; ++at)
      EXPECT_NEAR(down[plane * 12 + at], plain[plane * 12 + at + 4], 1e-4);
}

TEST(Upsample, RepeatsElementsByTheirOldPositions) {
  ModelBuilder b(9);
  b.input("x", {"batch", "1", "2"});
  b.floats("scales", {3}, {1, 1, 2.5});
  b.node("Upsample", {"x", "scales"}, {"y"});
  b.output("y");
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ::testing::ElementsAre(0, 0, 0, 1, 1, 2, 2, 2, 3, 3));
}

} // namespace

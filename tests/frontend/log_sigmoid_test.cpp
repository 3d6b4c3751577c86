//===- log_sigmoid_test.cpp - Logarithms of sigmoids, and softplus ---------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

namespace {

/// log(sigmoid(-1000)) is -1000, where sigmoid is 0 in every type.
TEST(LogSigmoid, DoesNotUnderflow) {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  b.node("Sigmoid", {"x"}, {"p"});
  b.node("Log", {"p"}, {"y"});
  ModelRunner runner;
  runner.options.batch = 1;
  runner.inputs["x"] = {-1000, -29, 0, 50};
  auto expected = [](double x) { return DoubleNear(-std::log1p(std::exp(-x)), 1e-12); };
  EXPECT_THAT(runner.run(b),
              ElementsAre(DoubleNear(-1000, 1e-9), expected(-29), expected(0), expected(50)));
}

TEST(Softplus, DoesNotOverflow) {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  b.node("Softplus", {"x"}, {"y"});
  ModelRunner runner;
  runner.options.batch = 1;
  runner.inputs["x"] = {-1000, -2, 0, 1000};
  EXPECT_THAT(runner.run(b), ElementsAre(0, DoubleNear(std::log1p(std::exp(-2)), 1e-12),
                                         DoubleNear(std::log(2), 1e-12), 1000));
}

} // namespace

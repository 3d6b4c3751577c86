//===- float_bounds_test.cpp - Bounds of floats against f64 ---------------===//

#include "tools/driver/Verify.h"

#include <gtest/gtest.h>

using namespace tbc;
using kernels::Tensor;

namespace {

Tensor tensor(const std::vector<double> &values) {
  return Tensor::fromDoubles({kernels::DType::F64, {int64_t(values.size())}}, kernels::Arith::F64,
                             values);
}

/// Two parameters with Adam's moments; a third has a name like a moment's.
program::Program adamOfTwo() {
  program::Program program;
  auto add = [&](const std::string &name, program::Role role) {
    program::GlobalTensor &tensor = program.tensors.emplace_back();
    tensor.name = name;
    tensor.role = role;
  };
  for (const std::string name : {"w", "b"}) {
    add(name, program::Role::Parameter);
    add(name + ".grad", program::Role::Gradient);
    add(name + ".m", program::Role::OptimizerState);
    add(name + ".v", program::Role::OptimizerState);
  }
  add("attention.v", program::Role::Parameter);
  return program;
}

/// Compares one tensor beside a "w" of its kind whose largest element is `largest`.
driver::Comparison compareOne(const std::string &name, double exact, double serial, double parallel,
                              double largest) {
  std::string beside = "w" + name.substr(name.rfind('.'));
  driver::RunRecord reference = {{name, tensor({exact})}, {beside, tensor({largest})}};
  driver::RunRecord one = {{name, tensor({serial})}, {beside, tensor({largest})}};
  driver::RunRecord other = {{name, tensor({parallel})}, {beside, tensor({largest})}};
  for (const driver::Comparison &line :
       driver::compareFloats(adamOfTwo(), reference, {one}, {reference}, other))
    if (line.name == name)
      return line;
  ADD_FAILURE() << name << " was not compared";
  return {};
}

/// The gradient of b is truly zero. The serial program leaves 1.4e-10, the parallel one 3.5e-10,
/// within the bound of a gradient. So the second moment, 0.001 of the square, is too.
TEST(FloatBounds, SecondMomentsOfZeroGradients) {
  double serial = 0.001 * 1.4e-10 * 1.4e-10, parallel = 0.001 * 3.5e-10 * 3.5e-10;
  EXPECT_GT(parallel, 4 * serial);
  EXPECT_TRUE(compareOne("b.grad", 0, 1.4e-10, 3.5e-10, 1e-9).equal);
  EXPECT_TRUE(compareOne("b.v", 0, serial, parallel, 1e-18).equal);
  // Five times the serial error of the gradient.
  EXPECT_FALSE(compareOne("b.v", 0, serial, 25 * serial, 1e-18).equal);
}

TEST(FloatBounds, SecondMomentsAreOffByTheirUlps) {
  double v = 3.0, step = 0x1p-22; // an ulp of 3 as f32
  EXPECT_TRUE(compareOne("b.v", v, v, v + step / 2, 0).equal);
  EXPECT_FALSE(compareOne("b.v", v, v, v + 8 * step, 0).equal);
  EXPECT_FALSE(compareOne("b.v", v, v, 1.01 * v, 0).equal);
}

/// The serial program cancels to exactly zero; the parallel one leaves the rounding of a term.
TEST(FloatBounds, GradientsThatCancelHaveAFloor) {
  EXPECT_TRUE(compareOne("b.grad", 0, 0, 0.9 * 0x1p-24, 1).equal);
  EXPECT_FALSE(compareOne("b.grad", 0, 0, 1.1 * 0x1p-24, 1).equal);
  EXPECT_FALSE(compareOne("b.grad", 0, 0, 0.9 * 0x1p-24, 0.5).equal);
  EXPECT_TRUE(compareOne("b.m", 0, 0, 0.09 * 0x1p-24, 0.1).equal);
  EXPECT_FALSE(compareOne("b.m", 0, 0, 0.11 * 0x1p-24, 0.1).equal);
}

/// Parameters have neither roots nor floors, even if named like a moment.
TEST(FloatBounds, ParametersHaveNoFloor) {
  EXPECT_FALSE(compareOne("attention.v", -1e-6, -1e-6, -1e-6 + 1e-9, 1).equal);
  EXPECT_TRUE(compareOne("attention.v", -1, -1 - 1e-7, -1 + 4e-7, 1).equal);
  EXPECT_FALSE(compareOne("attention.v", -1, -1 - 1e-7, -1 + 6e-7, 1).equal);
}

TEST(FloatBounds, WhatIsNotFiniteDiffers) {
  EXPECT_FALSE(compareOne("b.grad", 1, 1, INFINITY, 1).equal);
  EXPECT_FALSE(compareOne("b.v", 1, 1, NAN, 1).equal);
}

} // namespace

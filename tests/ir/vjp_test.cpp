//===- vjp_test.cpp - Gradients against finite differences -----------------===//

#include "tests/ir/CaseGradient.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace tbc;
using kernels::Tensor;

namespace {

/// Half the distance of a central difference, and the tolerance of its quotient. Its error is of
/// the order of step^2, plus 1e-16 / step.
constexpr double kStep = 1e-5, kTolerance = 1e-7;

double dot(const Tensor &a, const Tensor &b) {
  double sum = 0;
  for (size_t i = 0; i < a.data<double>().size(); ++i)
    sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

/// The central difference of dot(first result, cotangent) by one element of one input.
double difference(const CaseGradient &gradient, unsigned input, size_t element) {
  double values[2];
  for (int side : {0, 1}) {
    Tensors moved = gradient.operands;
    moved[input].mutableData<double>()[element] += side ? kStep : -kStep;
    values[side] = dot(runInDoubles(*gradient.forward, moved)[0], gradient.cotangent);
  }
  return (values[1] - values[0]) / (2 * kStep);
}

class Gradient : public testing::TestWithParam<OpCase> {};

TEST_P(Gradient, AgreesWithFiniteDifferences) {
  const OpCase &opCase = GetParam();
  CaseGradient result;
  ASSERT_NO_FATAL_FAILURE(computeGradient(opCase, result));
  for (auto [operand, gradient] : llvm::zip_equal(result.wanted, result.gradients))
    for (size_t element = 0; element < gradient.data<double>().size(); ++element) {
      double expected = difference(result, operand, element);
      EXPECT_NEAR(gradient.data<double>()[element], expected,
                  kTolerance * std::max(1.0, std::abs(expected)))
          << "operand " << operand << ", element " << element;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Gradient, testing::ValuesIn(differentiableCases()),
                         [](const testing::TestParamInfo<OpCase> &info) {
                           return info.param.mnemonic + "_" + std::to_string(info.index);
                         });

TEST(Gradients, AllHaveACase) {
  MLIRContext context;
  context.loadDialect<TbcDialect>();
  EXPECT_EQ(opsWithout<DifferentiableOpInterface>(differentiableCases(), context),
            std::vector<std::string>());
}

/// The norm of a row of zeros, and the distance of a point to itself, have no direction: 0, not
/// 0 / 0 or 1 / 0.
TEST(Gradients, OfRootsOfZeroAreZero) {
  OpCase opCase{"sqrt", "3xf32", "3xf32"};
  ParsedModule module(opCase.module());
  ASSERT_TRUE(module) << module.messages;
  Tensors operands = operandsFor(opCase, module, kernels::Arith::F64);
  ASSERT_NO_FATAL_FAILURE(differentiate(module, {0}));
  operands.push_back(operands[0]);
  operands[0].mutableData<double>() = {0, 0, 4};
  operands[1].mutableData<double>() = {0, 1, 1};
  Tensors gradients = runInDoubles(module, operands);
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].data<double>(), (std::vector<double>{0, 0, 0.25}));
}

TEST(Gradients, OfRotaryTablesAreRefused) {
  OpCase opCase{"rotary", "3x4xf32, 3x2xf32, 3x2xf32", "3x4xf32", "inverse = false"};
  ParsedModule module(opCase.module());
  ASSERT_TRUE(module) << module.messages;
  Operation *op = theOp(module);
  OpBuilder builder(module.function("f").getBody().front().getTerminator());
  SmallVector<Value> operandCotangents(3);
  EXPECT_TRUE(failed(cast<DifferentiableOpInterface>(op).buildVjp(
      builder, {op->getResult(0)}, {true, true, false}, operandCotangents)));
  EXPECT_NE(module.messages.find("not differentiable with respect to its cos and sin tables"),
            std::string::npos)
      << module.messages;
}

TEST(Gradients, ThroughStatisticsAreRefused) {
  OpCase opCase{"rms_norm", "3x4xf32, 4xf32", "3x4xf32, 3xf32", "epsilon = 1.0e-5 : f64"};
  ParsedModule module(opCase.module());
  ASSERT_TRUE(module) << module.messages;
  Operation *op = theOp(module);
  OpBuilder builder(module.function("f").getBody().front().getTerminator());
  SmallVector<Value> operandCotangents(2);
  EXPECT_TRUE(failed(cast<DifferentiableOpInterface>(op).buildVjp(
      builder, {op->getResult(0), op->getResult(1)}, {true, true}, operandCotangents)));
  EXPECT_NE(module.messages.find("not differentiable through its statistics"), std::string::npos)
      << module.messages;
}

} // namespace

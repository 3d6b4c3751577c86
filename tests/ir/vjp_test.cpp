//===- vjp_test.cpp - Gradients against finite differences -----------------===//

#include "ir/Interpreter.h"
#include "tests/ir/OpCases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;
using namespace tbc;
using kernels::Arith;
using kernels::Tensor;

namespace {

using Tensors = std::vector<Tensor>;

/// Half the distance of a central difference, and how far its quotient may be from the gradient:
/// its error is of the order of step^2, plus 1e-16 / step.
constexpr double kStep = 1e-5, kTolerance = 1e-7;

Tensors run(ParsedModule &module, const Tensors &inputs) {
  auto results = evaluateFunction(module.function("f"), inputs, Arith::F64);
  if (failed(results)) {
    ADD_FAILURE() << module.messages;
    return {};
  }
  return {results->begin(), results->end()};
}

double dot(const Tensor &a, const Tensor &b) {
  double sum = 0;
  for (size_t i = 0; i < a.data<double>().size(); ++i)
    sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

/// The central difference of dot(first result, cotangent) by one element of one input.
double difference(ParsedModule &module, const Tensors &inputs, const Tensor &cotangent,
                  unsigned input, size_t element) {
  double values[2];
  for (int side : {0, 1}) {
    Tensors moved = inputs;
    moved[input].mutableData<double>()[element] += side ? kStep : -kStep;
    values[side] = dot(run(module, moved)[0], cotangent);
  }
  return (values[1] - values[0]) / (2 * kStep);
}

/// Turns @f into the gradient: takes the cotangent of the first result as one more argument and
/// returns the cotangents of the operands `wanted`.
void differentiate(ParsedModule &module, const std::vector<unsigned> &wanted) {
  auto function = module.function("f");
  Operation *op = theOp(module);
  SmallVector<Value> cotangents(op->getNumResults()), operandCotangents(op->getNumOperands());
  cotangents[0] = addArguments(function, op->getResult(0).getType())[0];
  SmallVector<bool> needed(op->getNumOperands(), false);
  for (unsigned operand : wanted)
    needed[operand] = true;
  OpBuilder builder(function.getBody().front().getTerminator());
  ASSERT_TRUE(succeeded(
      cast<DifferentiableOpInterface>(op).buildVjp(builder, cotangents, needed, operandCotangents)))
      << module.messages;
  SmallVector<Value> results;
  for (auto [operand, cotangent] : llvm::enumerate(operandCotangents)) {
    ASSERT_TRUE(!cotangent || needed[operand]) << "operand " << operand;
    if (!needed[operand])
      continue;
    // A cotangent that is left out is zero.
    if (!cotangent)
      cotangent = splat(builder, op->getLoc(), tensorType(op->getOperand(operand)), 0);
    ASSERT_EQ(cotangent.getType(), op->getOperand(operand).getType()) << "operand " << operand;
    results.push_back(cotangent);
  }
  setResults(function, results);
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
}

class Gradient : public testing::TestWithParam<OpCase> {};

TEST_P(Gradient, AgreesWithFiniteDifferences) {
  const OpCase &opCase = GetParam();
  ParsedModule forward(opCase.module()), backward(opCase.module());
  ASSERT_TRUE(forward) << forward.messages;
  Tensors inputs = operandsFor(opCase, forward, Arith::F64);

  std::vector<unsigned> wanted;
  for (unsigned i = 0; i < inputs.size(); ++i)
    if (opCase.differentiated ? llvm::is_contained(*opCase.differentiated, i)
                              : inputs[i].holds<double>())
      wanted.push_back(i);
  ASSERT_NO_FATAL_FAILURE(differentiate(backward, wanted));

  Tensor cotangent = run(forward, inputs)[0];
  std::mt19937 random(11);
  for (double &value : cotangent.mutableData<double>())
    value = std::uniform_real_distribution<double>(-1, 1)(random);

  Tensors withCotangent = inputs;
  withCotangent.push_back(cotangent);
  Tensors gradients = run(backward, withCotangent);
  ASSERT_EQ(gradients.size(), wanted.size());
  for (auto [operand, gradient] : llvm::zip_equal(wanted, gradients))
    for (size_t element = 0; element < gradient.data<double>().size(); ++element) {
      double expected = difference(forward, inputs, cotangent, operand, element);
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

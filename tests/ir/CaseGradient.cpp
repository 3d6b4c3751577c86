//===- CaseGradient.cpp - The gradient of an op case -----------------------===//

#include "tests/ir/CaseGradient.h"

#include "ir/Interpreter.h"

#include <gtest/gtest.h>

#include <random>

using namespace mlir;

namespace tbc {

Tensors runInDoubles(ParsedModule &module, const Tensors &operands) {
  auto results = evaluateFunction(module.function("f"), operands, kernels::Arith::F64);
  if (failed(results)) {
    ADD_FAILURE() << module.messages;
    return {};
  }
  return {results->begin(), results->end()};
}

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
    // A missing cotangent is zero.
    if (!cotangent)
      cotangent = splat(builder, op->getLoc(), tensorType(op->getOperand(operand)), 0);
    ASSERT_EQ(cotangent.getType(), op->getOperand(operand).getType()) << "operand " << operand;
    results.push_back(cotangent);
  }
  setResults(function, results);
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
}

void computeGradient(const OpCase &opCase, CaseGradient &result) {
  result.forward = std::make_unique<ParsedModule>(opCase.module());
  ParsedModule backward(opCase.module());
  ASSERT_TRUE(*result.forward) << result.forward->messages;
  result.operands = operandsFor(opCase, *result.forward, kernels::Arith::F64);
  for (unsigned i = 0; i < result.operands.size(); ++i)
    if (opCase.differentiated ? llvm::is_contained(*opCase.differentiated, i)
                              : result.operands[i].holds<double>())
      result.wanted.push_back(i);
  ASSERT_NO_FATAL_FAILURE(differentiate(backward, result.wanted));

  Tensors results = runInDoubles(*result.forward, result.operands);
  ASSERT_FALSE(results.empty());
  result.cotangent = results[0];
  std::mt19937 random(11);
  for (double &value : result.cotangent.mutableData<double>())
    value = std::uniform_real_distribution<double>(-1, 1)(random);

  Tensors operands = result.operands;
  operands.push_back(result.cotangent);
  result.gradients = runInDoubles(backward, operands);
  ASSERT_EQ(result.gradients.size(), result.wanted.size());
}

} // namespace tbc

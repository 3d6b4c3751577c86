//===- decomposition_test.cpp - A composite is its decomposition -----------===//

#include "ir/Interpreter.h"
#include "tests/ir/OpCases.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace tbc;
using kernels::Arith;

namespace {

class Composite : public testing::TestWithParam<OpCase> {
protected:
  void SetUp() override { ASSERT_TRUE(module) << module.messages; }

  /// The results of @f as it is now.
  SmallVector<kernels::Tensor> evaluate(Arith arith) {
    auto results =
        evaluateFunction(module.function("f"), operandsFor(GetParam(), module, arith), arith);
    if (failed(results)) {
      ADD_FAILURE() << module.messages;
      return {};
    }
    return *results;
  }

  void decompose() {
    Operation *op = theOp(module);
    OpBuilder builder(op);
    SmallVector<Value> results;
    ASSERT_TRUE(succeeded(cast<CompositeOpInterface>(op).decompose(builder, results)));
    ASSERT_EQ(results.size(), op->getNumResults());
    for (auto [value, result] : llvm::zip_equal(results, op->getResults()))
      ASSERT_EQ(value.getType(), result.getType());
    op->replaceAllUsesWith(results);
    op->erase();
    ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  }

  ParsedModule module{GetParam().module()};
};

TEST_P(Composite, EqualsItsDecompositionInResidues) {
  auto before = evaluate(Arith::Residue61);
  decompose();
  auto after = evaluate(Arith::Residue61);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(kernels::bitwiseEqual(before[i], after[i])) << "result " << i;
}

TEST_P(Composite, EqualsItsDecompositionInDoubles) {
  auto before = evaluate(Arith::F64);
  decompose();
  auto after = evaluate(Arith::F64);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    std::vector<double> expected = before[i].toDoubles(), actual = after[i].toDoubles();
    for (size_t e = 0; e < expected.size(); ++e)
      EXPECT_NEAR(actual[e], expected[e], 1e-12 * std::max(1.0, std::abs(expected[e])))
          << "result " << i << ", element " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Composite, testing::ValuesIn(compositeCases()),
                         [](const testing::TestParamInfo<OpCase> &info) {
                           return info.param.mnemonic + "_" + std::to_string(info.index);
                         });

TEST(Composites, AllHaveACase) {
  MLIRContext context;
  context.loadDialect<TbcDialect>();
  EXPECT_EQ(opsWithout<CompositeOpInterface>(compositeCases(), context),
            std::vector<std::string>());
}

} // namespace

#include "passes/OpIds.h"
#include "passes/autodiff/RepeatFreeOps.h"
#include "passes/plan/Recompute.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

/// The ids of the ops with residuals as results.
std::vector<std::string> residualOps(func::FuncOp train) {
  std::vector<std::string> ids;
  for (Value value : residuals(train))
    if (Operation *op = value.getDefiningOp())
      ids.push_back(getId(op).str());
  return ids;
}

/// Every forward op's id.
llvm::StringSet<> allForward(func::FuncOp train) {
  llvm::StringSet<> ids;
  for (Operation &op : train.getBody().front().without_terminator())
    if (!isBackward(&op))
      ids.insert(getId(&op));
  return ids;
}

TEST(Recompute, DoesNotChangeABit) {
  for (const char *text : {kMlp, kConvNet})
    for (Arith arith : {Arith::Native, Arith::Residue61}) {
      ParsedModule module(text);
      buildStep(module);
      auto train = module.function("train");
      std::vector<Tensor> inputs = trainInputs(module, arith);
      std::vector<Tensor> before = evaluate(module, "train", inputs, arith);
      ASSERT_TRUE(succeeded(applyRecompute(train, allForward(train)))) << module.messages;
      ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
      std::vector<Tensor> after = evaluate(module, "train", inputs, arith);
      for (size_t i = 0; i < before.size(); ++i)
        EXPECT_TRUE(bitwiseEqual(before[i], after[i])) << "result " << i;
      EXPECT_TRUE(residualOps(train).empty());
    }
}

TEST(Recompute, RepeatsExactlyTheseOps) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  EXPECT_THAT(residualOps(train), IsSupersetOf({"gelu", "norm"}));
  llvm::StringSet<> ids;
  ids.insert("gelu");
  ASSERT_TRUE(succeeded(applyRecompute(train, ids)));
  EXPECT_THAT(residualOps(train), Not(Contains("gelu")));
  EXPECT_THAT(residualOps(train), Contains("norm"));

  Operation *clone = findOp(train, "gelu.recompute");
  EXPECT_TRUE(isBackward(clone));
  EXPECT_EQ(clone->getAttrOfType<StringAttr>(kForwardIdAttr).getValue(), "gelu");
  // It stands right before its first use, and the ops repeated before are still there.
  EXPECT_TRUE(llvm::is_contained(clone->getNextNode()->getOperands(), clone->getResult(0)));
  EXPECT_THAT(idsOf(train), Contains("scale.rc"));
}

TEST(Recompute, MayBeAppliedInSteps) {
  ParsedModule once(kMlp), twice(kMlp);
  buildStep(once);
  buildStep(twice);
  llvm::StringSet<> gelu, norm, both;
  gelu.insert("gelu"), norm.insert("norm"), both.insert("gelu"), both.insert("norm");
  ASSERT_TRUE(succeeded(applyRecompute(twice.function("train"), gelu)));
  ASSERT_TRUE(succeeded(applyRecompute(twice.function("train"), norm)));
  ASSERT_TRUE(succeeded(applyRecompute(once.function("train"), both)));
  EXPECT_EQ(idsOf(once.function("train")), idsOf(twice.function("train")));
}

TEST(Recompute, NamesAnUnknownOp) {
  ParsedModule module(kMlp);
  buildStep(module);
  llvm::StringSet<> ids;
  ids.insert("glu");
  EXPECT_TRUE(failed(applyRecompute(module.function("train"), ids)));
  EXPECT_THAT(module.messages, HasSubstr("no forward op \"glu\""));
}

} // namespace
} // namespace tbc

#include "passes/decompose/DecomposeComposites.h"
#include "passes/decompose/UseBatchStatistics.h"
#include "passes/loss/AttachLoss.h"
#include "tests/passes/StepFixture.h"

#include "ir/Activation.h"
#include "ir/Contraction.h"
#include "ir/Normalization.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

bool isComposite(Operation *op) { return isa<CompositeOpInterface>(op); }

TEST(DecomposeComposites, DoesNotChangeABitOfTheResidues) {
  for (const char *text : {kMlp, kConvNet}) {
    ParsedModule module(text);
    buildStep(module);
    std::vector<Tensor> inputs = trainInputs(module, Arith::Residue61);
    std::vector<Tensor> before = evaluate(module, "train", inputs, Arith::Residue61);
    ASSERT_TRUE(succeeded(decomposeComposites(module.function("train"), isComposite)))
        << module.messages;
    ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
    for (Operation &op : module.function("train").getBody().front())
      EXPECT_FALSE(isComposite(&op)) << op.getName().getStringRef().str();
    std::vector<Tensor> after = evaluate(module, "train", inputs, Arith::Residue61);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(bitwiseEqual(before[i], after[i])) << "result " << i;
  }
}

TEST(DecomposeComposites, KeepsWhatIsNotWantedAndNumbersTheRest) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  ASSERT_TRUE(succeeded(decomposeComposites(train, [](Operation *op) { return isa<GeluOp>(op); })));
  EXPECT_THAT(idsOf(train), AllOf(Contains("norm"), Contains("gelu.0"), Not(Contains("gelu"))));
  EXPECT_TRUE(findOp(train, "gelu.0")->hasAttr(kPhaseAttr));
  EXPECT_EQ(phaseOf(findOp(train, "gelu.0")), reshard::Phase::Forward);
}

TEST(DecomposeComposites, RefusesAnOpThatIsNone) {
  ParsedModule module(kMlp);
  EXPECT_TRUE(failed(decomposeComposites(module.function("model"),
                                         [](Operation *op) { return isa<EinsumOp>(op); })));
  EXPECT_THAT(module.messages, HasSubstr("is to be decomposed but is no composite"));
}

TEST(UseBatchStatistics, UpdatesTheRunningStatistics) {
  ParsedModule module(kConvNet);
  auto model = module.function("model");
  ASSERT_TRUE(succeeded(useBatchStatistics(model))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_THAT(resultNames(model, TensorRole::State),
              testing::ElementsAre("running_mean", "running_var"));
  EXPECT_TRUE(isa<BatchNormTrainOp>(findOp(model, "bn")));
}

TEST(UseBatchStatistics, RefusesStatisticsThatAreNoStates) {
  std::string text = kConvNet;
  text.replace(text.find("<state>"), 7, "<param>");
  ParsedModule module(text);
  EXPECT_TRUE(failed(useBatchStatistics(module.function("model"))));
  EXPECT_THAT(module.messages, HasSubstr("running statistics that are no state"));
}

} // namespace
} // namespace tbc

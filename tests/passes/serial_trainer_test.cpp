#include "ir/Roles.h"
#include "ir/SerialTrainer.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <algorithm>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::HasSubstr;

/// Rows `first` .. `first + count - 1` of a rank-2 or rank-1 tensor.
template <typename T> Tensor rows(const Tensor &tensor, int64_t first, int64_t count) {
  kernels::TensorType type = tensor.type();
  int64_t row = tensor.numElements() / type.shape[0];
  type.shape[0] = count;
  auto begin = tensor.data<T>().begin() + first * row;
  return Tensor(type, std::vector<T>(begin, begin + count * row));
}

/// The text of kMlp for another batch size.
std::string mlpOfBatch(int64_t batch) {
  std::string text = kMlp;
  for (size_t at = 0; (at = text.find("<4x", at)) != std::string::npos; ++at)
    text.replace(at, 3, "<" + std::to_string(batch) + "x");
  return text;
}

/// The trainer's values after one step of batch 4 in micro-batches of `size`.
SerialTrainer::Tensors stepInMicroBatches(int64_t size) {
  ParsedModule whole(kMlp), module(mlpOfBatch(size));
  buildStep(whole);
  buildStep(module, /*samples=*/4);
  SerialTrainer trainer(*module, Arith::Residue61);
  std::vector<Tensor> inputs = trainInputs(whole, Arith::Residue61);
  SerialTrainer::Tensors data;
  auto train = whole.function("train");
  for (unsigned i = 0; i < inputs.size(); ++i) {
    std::string name = train.getArgAttrOfType<StringAttr>(i, kNameAttr).str();
    if (argumentRole(train, i) == TensorRole::Parameter)
      EXPECT_TRUE(succeeded(trainer.set(name, inputs[i]))) << module.messages;
    else
      data[name] = inputs[i];
  }
  std::vector<SerialTrainer::Tensors> batches;
  for (int64_t first = 0; first < 4; first += size)
    batches.push_back({{"x", rows<kernels::Residue>(data["x"], first, size)},
                       {"labels", rows<int64_t>(data["labels"], first, size)}});
  EXPECT_TRUE(succeeded(trainer.step(batches, 0.125))) << module.messages;
  SerialTrainer::Tensors values = trainer.values();
  values["loss"] = trainer.loss();
  return values;
}

TEST(SerialTrainer, MicroBatchesAddUpToTheGlobalBatch) {
  SerialTrainer::Tensors whole = stepInMicroBatches(4), parts = stepInMicroBatches(1);
  ASSERT_EQ(whole.size(), parts.size());
  for (const auto &[name, value] : whole)
    EXPECT_TRUE(bitwiseEqual(value, parts[name])) << name;
  EXPECT_TRUE(whole.count("w1.m") && whole.count("w1.v"));
}

TEST(SerialTrainer, NamesAMissingValue) {
  ParsedModule module(kMlp);
  buildStep(module);
  SerialTrainer trainer(*module, Arith::Native);
  EXPECT_TRUE(failed(trainer.step({{}}, 0.1)));
  EXPECT_THAT(module.messages, HasSubstr("no value is given for input \"x\""));
}

TEST(SerialTrainer, RefusesAnUnknownName) {
  ParsedModule module(kMlp);
  buildStep(module);
  SerialTrainer trainer(*module, Arith::Native);
  EXPECT_TRUE(failed(trainer.set("w9", Tensor())));
  EXPECT_THAT(module.messages, HasSubstr("@train has no argument \"w9\""));
}

} // namespace
} // namespace tbc

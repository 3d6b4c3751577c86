//===- pretrained_test.cpp - Initial values from safetensors ---------------===//

#include "runtime/train/Weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace tbc::train {
namespace {

using checkpoint::Entry;
using kernels::Arith;
using kernels::DType;
using testing::ElementsAre;
using testing::HasSubstr;

/// A folder for safetensors files.
class PretrainedTest : public testing::Test {
protected:
  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-pretrained-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  struct Named {
    std::string name;
    kernels::Shape shape;
    std::vector<float> values;
    std::string dtype = "F32";
  };
  std::string store(const std::string &name, const std::vector<Named> &tensors) {
    std::vector<Entry> entries;
    for (const Named &tensor : tensors)
      entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    std::string path = folder + "/" + name;
    Status status = checkpoint::writeSafetensors(path, entries, {}, [&](size_t i) {
      std::vector<unsigned char> bytes(tensors[i].values.size() * 4);
      std::memcpy(bytes.data(), tensors[i].values.data(), bytes.size());
      return Result<std::vector<unsigned char>>(bytes);
    });
    EXPECT_TRUE(bool(status));
    return path;
  }
  static Initializer initializer(const std::string &name, kernels::Shape shape,
                                 const std::string &path = "", bool isTransposed = false) {
    Initializer result;
    result.name = name;
    result.type = {DType::F32, std::move(shape)};
    result.path = path;
    result.isTransposed = isTransposed;
    return result;
  }
  std::string errorOf(const std::string &path) {
    Result<Pretrained> opened = Pretrained::open(path, manifest);
    return opened ? "" : opened.error().message;
  }

  std::string folder;
  Manifest manifest;
};

TEST_F(PretrainedTest, TensorsAreFoundByNameByPathAndTransposed) {
  manifest.initializers = {
      initializer("h.0.ln.weight", {2}),
      initializer("onnx::MatMul_7", {3, 2}, "transformer.h.0.fc.weight", true),
      initializer("onnx::MatMul_9", {2, 2}, "transformer.h.1.fc.weight", true)};
  std::string file = store("m.safetensors", {{"h.0.ln.weight", {2}, {1, 2}},
                                             {"h.0.fc.weight", {2, 3}, {1, 2, 3, 4, 5, 6}},
                                             {"h.1.fc.weight", {2, 2}, {1, 2, 3, 4}},
                                             {"h.0.attn.bias", {1}, {7}}});
  Result<Pretrained> opened = Pretrained::open(file, manifest);
  ASSERT_TRUE(bool(opened)) << opened.error().message;
  EXPECT_EQ(opened->at(0, 1), 2);
  std::vector<double> fc, square;
  for (int i = 0; i < 6; ++i)
    fc.push_back(opened->at(1, i));
  for (int i = 0; i < 4; ++i)
    square.push_back(opened->at(2, i));
  EXPECT_THAT(fc, ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(square, ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(opened->unused(), ElementsAre("h.0.attn.bias"));
}

TEST_F(PretrainedTest, AFolderOfShardsIsRead) {
  manifest.initializers = {initializer("a.w", {1}), initializer("b.w", {1})};
  store("model-00001.safetensors", {{"a.w", {1}, {1}}});
  store("model-00002.safetensors", {{"b.w", {1}, {2}}});
  EXPECT_THAT(errorOf(folder), HasSubstr("has neither"));
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"weight_map": {"a.w": "model-00001.safetensors", "b.w": "model-00002.safetensors"}})";
  Result<Pretrained> opened = Pretrained::open(folder, manifest);
  ASSERT_TRUE(bool(opened)) << opened.error().message;
  EXPECT_EQ(opened->at(1, 0), 2);
  std::filesystem::remove(folder + "/model-00002.safetensors");
  EXPECT_THAT(errorOf(folder), HasSubstr("model-00002.safetensors"));
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"weight_map": {"a.w": "../model-00001.safetensors"}})";
  EXPECT_THAT(errorOf(folder), HasSubstr("no name of a file in its folder"));
}

TEST_F(PretrainedTest, ATensorThatDoesNotFitIsNamed) {
  manifest.initializers = {initializer("a.w", {2, 3})};
  EXPECT_THAT(errorOf(store("1", {{"a.w", {3, 2}, {1, 2, 3, 4, 5, 6}}})),
              HasSubstr(R"("a.w" has shape [3, 2]; "a.w" of the model has [2, 3])"));
  EXPECT_THAT(errorOf(store("2", {{"a.w", {6}, {1, 2, 3, 4, 5, 6}, "I32"}})), HasSubstr("I32"));
  EXPECT_THAT(errorOf(store("3", {{"c.w", {1}, {1}}})), HasSubstr("has no tensor for a.w"));
  EXPECT_THAT(errorOf(store("4", {{"x.a.w", {1}, {1}}, {"y.a.w", {1}, {1}}})),
              HasSubstr(R"(both "x.a.w" and "y.a.w" may be "a.w")"));
  std::ofstream(folder + "/5") << "no tensors";
  EXPECT_THAT(errorOf(folder + "/5"), HasSubstr("damaged"));
}

TEST_F(PretrainedTest, AStateMayComeFromTheModel) {
  Initializer state = initializer("running_mean", {1});
  state.isState = true;
  manifest.initializers = {initializer("a.w", {1}), state};
  auto file = store("m.safetensors", {{"a.w", {1}, {5}}});
  Result<Pretrained> opened = Pretrained::open(file, manifest);
  ASSERT_TRUE(bool(opened)) << opened.error().message;
  EXPECT_FALSE(opened->has(1));
  // Neither the file nor the model contains it.
  auto shared = std::make_shared<const Pretrained>(std::move(*opened));
  Result<Weights> weights = Weights::open(manifest, folder, Arith::Native, true, shared);
  ASSERT_FALSE(bool(weights));
  EXPECT_THAT(weights.error().message, HasSubstr("\"running_mean\""));
  manifest.initializers.pop_back();
  weights = Weights::open(manifest, folder, Arith::Native, true, shared);
  ASSERT_TRUE(bool(weights)) << weights.error().message;
  program::GlobalTensor tensor;
  tensor.name = tensor.initializer = "a.w";
  tensor.type = {DType::F32, {1}};
  EXPECT_THAT(weights->piece(tensor, {0}, {DType::F32, {1}})->toDoubles(), ElementsAre(5));
}

} // namespace
} // namespace tbc::train

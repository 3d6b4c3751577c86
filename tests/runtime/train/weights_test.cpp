//===- weights_test.cpp - Initial values of parameters ---------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/train/Weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace tbc::train {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

program::GlobalTensor tensorOf(const std::string &name, kernels::TensorType type) {
  program::GlobalTensor tensor;
  tensor.name = tensor.initializer = name;
  tensor.type = std::move(type);
  return tensor;
}

/// A file with f32 values 1 … 6 at byte 4 as "w" [2, 3], and varints of two bf16 values as "v".
class Weights : public testing::Test {
protected:
  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-weights-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    content = "head";
    for (float value : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f})
      content.append(reinterpret_cast<const char *>(&value), 4);
    content += "\x80\x7f\x80\x81\x03"; // 0x3f80 = 1 and 0xc080 = -4
    write(content);
    manifest.files = {{"m.bin", int64_t(content.size()), sha256Hex(content)}};
    manifest.initializers = {{"w", {DType::F32, {2, 3}}, Start::Normal, 0, 4, 24, false},
                             {"v", {DType::BF16, {2}}, Start::Ones, 0, 28, 5, true}};
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void write(const std::string &bytes) {
    std::ofstream(folder + "/m.bin", std::ios::binary) << bytes;
  }
  Result<train::Weights> open(bool checksHashes = true) {
    return train::Weights::open(manifest, folder, Arith::Native, checksHashes);
  }

  std::string folder, content;
  Manifest manifest;
};

TEST_F(Weights, APieceIsCutFromTheFile) {
  auto weights = open();
  ASSERT_TRUE(bool(weights)) << weights.error().message;
  auto piece = weights->piece(tensorOf("w", {DType::F32, {2, 3}}), {4, 1, -1}, {DType::F32, {3}});
  EXPECT_THAT(piece->toDoubles(), ElementsAre(5, 2, 0));
  auto varints = weights->piece(tensorOf("v", {DType::BF16, {2}}), {0, 1}, {DType::BF16, {2}});
  EXPECT_THAT(varints->toDoubles(), ElementsAre(1, -4));
}

TEST_F(Weights, APaddedTensorHasZerosBehind) {
  auto weights = open();
  auto piece =
      weights->piece(tensorOf("w", {DType::F32, {3, 4}}), {0, 2, 3, 4, 5, 8}, {DType::F32, {6}});
  EXPECT_THAT(piece->toDoubles(), ElementsAre(1, 3, 0, 4, 5, 0));
}

TEST_F(Weights, AFileThatChangedIsRefused) {
  content[6] ^= 1;
  write(content);
  EXPECT_THAT(open().error().message, HasSubstr("SHA-256"));
  EXPECT_TRUE(bool(open(false)));
  write(content + "x");
  EXPECT_THAT(open(false).error().message, HasSubstr("bytes"));
  std::filesystem::remove(folder + "/m.bin");
  EXPECT_THAT(open(false).error().message, HasSubstr("--init-weights"));
}

TEST_F(Weights, AModelWithoutWeightsIsRefused) {
  manifest.initializers[0].file = -1;
  EXPECT_THAT(open().error().message, HasSubstr("--init-weights"));
}

TEST_F(Weights, WhatTheManifestDoesNotHaveIsRefused) {
  auto weights = open();
  EXPECT_THAT(
      weights->piece(tensorOf("u", {DType::F32, {1}}), {0}, {DType::F32, {1}}).error().message,
      HasSubstr("compile again"));
  EXPECT_THAT(
      weights->piece(tensorOf("w", {DType::F32, {2, 2}}), {0}, {DType::F32, {1}}).error().message,
      HasSubstr("another shape"));
}

TEST_F(Weights, DrawnOnesAreTheSameInEveryPiece) {
  manifest.initializers.push_back(
      {"big", {DType::F32, {100, 300}}, Start::Normal, -1, 0, 0, false});
  train::Weights weights = train::Weights::draw(manifest, Arith::Native, 5);
  std::vector<int64_t> all(30000);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = int64_t(i);
  program::GlobalTensor big = tensorOf("big", {DType::F32, {100, 300}});
  std::vector<double> whole = weights.piece(big, all, {DType::F32, {100, 300}})->toDoubles();
  auto piece = weights.piece(big, {29999, 77}, {DType::F32, {2}});
  EXPECT_THAT(piece->toDoubles(), ElementsAre(whole[29999], whole[77]));
  double sum = 0, squares = 0;
  for (double value : whole) {
    sum += value;
    squares += value * value;
  }
  // sqrt(2 / 400). The estimates deviate from it by about 0.4 %.
  double deviation = std::sqrt(2.0 / 400);
  EXPECT_NEAR(sum / 30000, 0, 0.03 * deviation);
  EXPECT_NEAR(std::sqrt(squares / 30000), deviation, 0.03 * deviation);
  auto ones = weights.piece(tensorOf("v", {DType::BF16, {2}}), {0, 1}, {DType::BF16, {2}});
  EXPECT_THAT(ones->toDoubles(), ElementsAre(1, 1));
  train::Weights others = train::Weights::draw(manifest, Arith::Native, 6);
  EXPECT_NE(others.piece(big, {77}, {DType::F32, {1}})->toDoubles()[0], whole[77]);
}

} // namespace
} // namespace tbc::train

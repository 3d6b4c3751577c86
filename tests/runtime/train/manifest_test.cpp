//===- manifest_test.cpp - Inputs of a run besides the Program -------------===//

#include "runtime/train/Manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tbc::train {
namespace {

using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.programHash = "abc";
  manifest.model = "def";
  manifest.tokensPerSample = 8;
  manifest.modelFlops = 1.5e9;
  manifest.peakFlopsPerSecond = 1e12;
  manifest.gradientNorm = "gradient_norm";
  manifest.memory = {{1000, 1500}, {900, 1400}};
  manifest.inputs = {{"x", InputKind::Data, 1, 256, std::nullopt},
                     {"labels", InputKind::Label, 0, 256, -100},
                     {"tbc.step", InputKind::Step, -1, 0, std::nullopt}};
  manifest.files = {{"../m.onnx", 1000, "123"}};
  manifest.initializers = {{"w", {kernels::DType::F32, {2, 3}}, Start::Normal, 0, 100, 24, false},
                           {"v", {kernels::DType::F16, {4}}, Start::Ones, 0, 200, 7, true},
                           {"none", {kernels::DType::F32, {5}}, Start::Zeros, -1, 0, 0, false}};
  return manifest;
}

TEST(Manifest, ComesBackTheSame) {
  std::string text = writeManifest(example());
  auto read = readManifest(text);
  ASSERT_TRUE(bool(read)) << read.error().message;
  EXPECT_EQ(writeManifest(*read), text);
  EXPECT_EQ(read->inputs[1].ignored, -100);
  EXPECT_EQ(read->initializers[0].offset, 100);
  EXPECT_EQ(read->modelFlops, 1.5e9);
  EXPECT_EQ(read->model, "def");
  EXPECT_EQ(read->gradientNorm, "gradient_norm");
  EXPECT_EQ(read->target, Target::Cpu);
}

TEST(Manifest, NamesItsTarget) {
  Manifest manifest = example();
  manifest.target = Target::Cuda;
  auto read = readManifest(writeManifest(manifest));
  ASSERT_TRUE(bool(read)) << read.error().message;
  EXPECT_EQ(read->target, Target::Cuda);
  std::string text = writeManifest(manifest);
  text.replace(text.find("\"cuda\""), 6, "\"none\"");
  EXPECT_FALSE(readManifest(text));
}

TEST(Manifest, NamesTheDevicesOfStages) {
  EXPECT_EQ(writeManifest(example()).find("stage_devices"), std::string::npos);
  Manifest manifest = example();
  manifest.stageDevices = {"h100-sxm", "l4"};
  std::string text = writeManifest(manifest);
  auto read = readManifest(text);
  ASSERT_TRUE(bool(read)) << read.error().message;
  EXPECT_EQ(read->stageDevices, manifest.stageDevices);
  text.replace(text.find("\"l4\""), 4, "4");
  EXPECT_THAT(readManifest(text).error().message, HasSubstr("stage_devices"));
}

std::string errorAfter(const std::string &from, const std::string &to) {
  std::string text = writeManifest(example());
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  auto read = readManifest(text);
  if (read)
    return "no error";
  EXPECT_EQ(read.error().code, ErrorCode::Usage);
  return read.error().message;
}

TEST(Manifest, WrongOnesAreRefused) {
  EXPECT_THAT(errorAfter("{", "["), HasSubstr("no JSON"));
  EXPECT_THAT(errorAfter("\"tbc-run\"", "\"other\""), HasSubstr("no manifest"));
  EXPECT_THAT(errorAfter("\"version\": 2", "\"version\": 9"), HasSubstr("version 9"));
  EXPECT_THAT(errorAfter("1500000000.0", "-1"), HasSubstr("model_flops"));
  EXPECT_THAT(errorAfter("\"kind\": \"data\"", "\"kind\": \"date\""), HasSubstr("date"));
  EXPECT_THAT(errorAfter("\"inputs\"", "\"imputs\""), HasSubstr("\"inputs\""));
  EXPECT_THAT(errorAfter("\"offset\": 100", "\"offset\": 977"), HasSubstr("beyond the end"));
  EXPECT_THAT(errorAfter("\"offset\": 100", "\"offset\": -1"), HasSubstr("offset"));
  EXPECT_THAT(errorAfter("\"offset\": 100", "\"offset\": 18446744073709551615"),
              HasSubstr("offset"));
  EXPECT_THAT(errorAfter("\"bytes\": 24", "\"bytes\": 20"), HasSubstr("do not make its shape"));
  EXPECT_THAT(errorAfter("\"file\": 0", "\"file\": 1"), HasSubstr("no file 1"));
  EXPECT_THAT(errorAfter("\"f32\"", "\"f33\""), HasSubstr("dtype"));
  EXPECT_THAT(errorAfter("    2,", "    200000000000000000,"), HasSubstr("shape"));
}

TEST(Manifest, AnyTextIsReadOrRefused) {
  std::string text = writeManifest(example());
  std::mt19937 random(3);
  int numRefused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = text;
    for (int k = 0; k <= int(random() % 3); ++k) {
      size_t at = random() % mutant.size();
      if (random() % 3 == 0)
        mutant.erase(at, random() % 20);
      else
        mutant[at] = "0123456789-{}[],:\"etnul"[random() % 23];
    }
    numRefused += !readManifest(mutant);
  }
  EXPECT_GT(numRefused, 1000);
  EXPECT_LT(numRefused, 3000);
}

} // namespace
} // namespace tbc::train

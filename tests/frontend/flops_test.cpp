//===- flops_test.cpp - FLOPs of tbc check are the closed forms -------------===//

#include "tests/frontend/Architectures.h"
#include "tools/tbc/CheckCommand.h"

#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;

namespace {

cli::CheckReport checkFile(const std::string &path, int64_t seq) {
  frontend::ImportOptions options;
  options.seq = seq;
  auto report = cli::checkModel(path, options);
  if (!report)
    throw std::runtime_error(report.error().message);
  return *report;
}
cli::CheckReport check(const std::string &name, int64_t seq) {
  return checkFile(TBC_SOURCE_DIR "/models/" + name + ".onnx", seq);
}
cli::CheckReport check(const ModelBuilder &model, int64_t seq = -1) {
  TemporaryFolder folder;
  return checkFile(folder.write("model.onnx", model.bytes()), seq);
}

/// Forward FLOPs of GPT-2 per sample: four matmuls per layer, scores and their use, the head.
TEST(Check, FlopsOfGpt2AreTheClosedForm) {
  double layers = 12, h = 768, v = 50257;
  for (double s : {1024.0, 256.0}) {
    double products = 2 * s * (h * 3 * h + h * h + 2 * h * 4 * h), scores = 2 * 2 * s * s * h;
    EXPECT_DOUBLE_EQ(check("gpt2", int64_t(s)).flopsPerSample,
                     layers * (products + scores) + 2 * s * h * v);
  }
}

/// Each token goes to 2 of 4 experts; their first layer has a gate.
TEST(Check, FlopsOfRoutedExpertsAreThoseOfTheirTopK) {
  double layers = 8, h = 24, v = 64, f = 32, experts = 4, top = 2, s = 16;
  double attention = 2 * s * (h * 3 * h + h * h) + 2 * 2 * s * s * h;
  double routed = 2 * s * (h * experts + top * 3 * h * f);
  EXPECT_DOUBLE_EQ(check("moe-8l", 16).flopsPerSample,
                   layers * (attention + routed) + 2 * s * h * v);
}

/// Forward FLOPs of a Llama per sample: two per weight of a projection and position, scores and
/// their use, the head.
TEST(Check, FlopsOfASmallLlamaAreTheClosedForm) {
  double layers = 2, h = 64, keys = 32, v = 256, s = 128;
  cli::CheckReport report = check("tiny-llama", int64_t(s));
  auto up = std::find_if(report.parameters.begin(), report.parameters.end(), [](const auto &t) {
    return t.displayName == "model.layers.0.mlp.up_proj.weight";
  });
  ASSERT_NE(up, report.parameters.end());
  double inner = double(up->shape[1]);
  double weights = 2 * h * h + 2 * h * keys + 3 * h * inner;
  EXPECT_DOUBLE_EQ(report.flopsPerSample,
                   layers * (2 * s * weights + 4 * s * s * h) + 2 * s * h * v);
}

/// Llama 3 8B: as above with 8 of 32 heads for keys and values.
TEST(Check, FlopsOfLlama3Of8BAreTheClosedForm) {
  TransformerSizes n{32, 4096, 32, 1024, 14336, 128256};
  ModelBuilder model = makeLlama(n);
  for (double s : {48.0, 64.0}) {
    double h = 4096, keys = 1024, inner = 14336, v = 128256;
    double weights = 2 * h * h + 2 * h * keys + 3 * h * inner;
    cli::CheckReport report = check(model, int64_t(s));
    EXPECT_DOUBLE_EQ(report.flopsPerSample, 32 * (2 * s * weights + 4 * s * s * h) + 2 * s * h * v);
    EXPECT_EQ(report.composites["attention"], 32);
    EXPECT_EQ(report.parameterElements, 8030261248);
  }
}

/// BERT large: four projections and two layers of 4 h, scores and their use, the head's own layer
/// and its matmul with the token table.
TEST(Check, FlopsOfBertLargeAreTheClosedForm) {
  ModelBuilder model = makeBert({24, 1024, 16, 1024, 4096, 30522});
  for (double s : {512.0, 128.0}) {
    double h = 1024, v = 30522;
    cli::CheckReport report = check(model, int64_t(s));
    EXPECT_DOUBLE_EQ(report.flopsPerSample,
                     24 * (2 * s * 12 * h * h + 4 * s * s * h) + 2 * s * h * h + 2 * s * h * v);
    EXPECT_EQ(report.composites["attention"], 24);
    EXPECT_EQ(report.composites["gelu"], 25);
  }
}

/// ResNet-50: a multiply-add per position and weight of each convolution. A stage of inner width w
/// and side s has n blocks of w*in + 9 w*w + 4 w*w weights. The first 1x1 of a stage runs at the
/// side of the stage before.
TEST(Check, FlopsOfResNet50AreTheClosedForm) {
  double products = 112.0 * 112 * 7 * 7 * 3 * 64 + 2048 * 1000, before = 56, channels = 64;
  const double blocks[] = {3, 4, 6, 3}, sides[] = {56, 28, 14, 7};
  for (int stage = 0; stage < 4; ++stage) {
    double w = 64 << stage, side = sides[stage], n = blocks[stage];
    products += before * before * channels * w + side * side * channels * 4 * w; // enters, skips
    products += side * side * (n * (9 * w * w + 4 * w * w) + (n - 1) * 4 * w * w);
    before = side, channels = 4 * w;
  }
  cli::CheckReport report = check(makeResNet50());
  EXPECT_DOUBLE_EQ(report.flopsPerSample, 2 * products);
  EXPECT_EQ(report.flopsPerSample, 8178368512);
  EXPECT_EQ(report.parameterElements, 25557032);
}

} // namespace

//===- clusters_test.cpp - A real model planned on every cluster preset ---===//

#include "planner/search/Search.h"
#include "tests/runtime/support/FullTests.h"
#include "tools/driver/Context.h"
#include "tools/driver/TrainingStep.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

using namespace tbc;
using namespace tbc::planner;

namespace {

/// A model as in `tbc plan`.
class Planned : public testing::Test {
protected:
  void load(const std::string &name) {
    context = driver::makeContext();
    driver::StepOptions options;
    options.modelPath = TBC_SOURCE_DIR "/models/" + name + ".onnx";
    options.precision = planner::Precision::BF16;
    auto built = driver::buildTrainingStep(*context, options);
    ASSERT_TRUE(built) << built.error().message;
    step = std::move(*built);
  }

  /// Returns the plan of `batch` samples a step on `gpus` devices of `preset`.
  Result<Plan> plan(const std::string &preset, int64_t gpus, int64_t batch = 512,
                    const Pins &pins = {}) {
    auto cluster = loadCluster(preset);
    if (!cluster)
      return cluster.error();
    Job job;
    job.modelHash = step->model.hash;
    job.stepHash = step->hash;
    job.precision = planner::Precision::BF16;
    job.sequence = step->model.seq;
    job.globalBatch = batch;
    job.gpus = gpus;
    auto answer = search(step->step.graph, job, *cluster, pins);
    if (!answer)
      return answer.error();
    return answer->plan;
  }
  double stepSeconds(const std::string &preset, int64_t gpus) {
    auto answer = plan(preset, gpus);
    EXPECT_TRUE(answer) << preset << ": " << answer.error().message;
    return answer ? answer->prediction.stepSeconds : 0;
  }

  std::unique_ptr<mlir::MLIRContext> context;
  std::unique_ptr<driver::TrainingStep> step;
};

} // namespace

TEST_F(Planned, EachPresetPlansGpt2OnEightDevices) {
  load("gpt2");
  for (const std::string &preset : clusterPresets()) {
    auto answer = plan(preset, 8);
    ASSERT_TRUE(answer) << preset << ": " << answer.error().message;
    const Prediction &prediction = answer->prediction;
    EXPECT_TRUE(prediction.fits()) << preset;
    EXPECT_GT(prediction.mfu, 0.02) << preset;
    EXPECT_LT(prediction.mfu, 0.80) << preset;
  }
}

// One device, several racks, and node sizes that do not divide. A sample gives each preset one of
// them, and leaves open what depends on the devices: the mesh, what is sharded, and micro-batches.
// The free search of many devices takes 20 s even of this model.
TEST_F(Planned, MoreDevicesAreNeverAnError) {
  load("tiny-mlp");
  const std::vector<int64_t> sizes = {72, 1, 6, 80, 2, 16, 256};
  Pins simple;
  simple.schedule = "1f1b";
  simple.recompute = "none";
  size_t next = 0;
  for (const std::string &preset : clusterPresets()) {
    bool isWhole = test::isFullRun() || preset == defaultClusterName;
    std::vector<int64_t> some = {sizes[next++ % sizes.size()]};
    for (int64_t gpus : isWhole ? sizes : some) {
      auto answer = plan(preset, gpus, 256, test::isFullRun() || gpus <= 2 ? Pins() : simple);
      ASSERT_TRUE(answer) << preset << " x " << gpus << ": " << answer.error().message;
      EXPECT_TRUE(answer->prediction.fits()) << preset << " x " << gpus;
    }
  }
}

TEST_F(Planned, BetterPartsAreNeverSlower) {
  load("gpt2-8l");
  std::map<std::string, double> seconds;
  for (auto [worse, better] :
       {std::pair("h100-sxm", "h200-sxm"), std::pair("h100-pcie", "h100-sxm"),
        std::pair("h200-sxm", "b200"), std::pair("a100-40gb-sxm", "a100-80gb-sxm"),
        std::pair("a100-80gb-pcie", "a100-80gb-sxm"), std::pair("v100-16gb", "v100-32gb"),
        std::pair("v100-32gb", "a100-40gb-sxm"), std::pair("l4", "l40s"),
        std::pair("tpu-v5e", "tpu-v5p"), std::pair("b200", "gb200-nvl72")}) {
    for (const char *preset : {worse, better})
      if (!seconds.count(preset))
        seconds[preset] = stepSeconds(preset, 8);
    // The search is exact up to its printed gap: here a quarter of the step, which is mostly
    // launches. The rest comes from stage cuts and is less than 2 %.
    EXPECT_LE(seconds[better], seconds[worse] * 1.02) << better << " against " << worse;
  }
}

// The devices of a rack share one NVLink domain; those of eight nodes do not.
TEST_F(Planned, ARackIsOneNode) {
  load("gpt2-8l");
  Pins pins;
  pins.mesh = *parseMesh("fsdp=64"); // free plans of so small a model need no fast gathers
  auto rack = plan("gb200-nvl72", 64, 512, pins), nodes = plan("b200", 64, 512, pins);
  ASSERT_TRUE(rack && nodes);
  EXPECT_LT(rack->prediction.stepSeconds, 0.9 * nodes->prediction.stepSeconds);
}

//===- mutation_test.cpp - Real models with something changed -----------------===//
//
// TBC_MUTATIONS says how many in all; 5000 are all that the project promises.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/hostile/Import.h"
#include "tests/hostile/WireMutator.h"

#include "gtest/gtest.h"

#include <fstream>
#include <iostream>
#include <sstream>

using namespace tbc;
using namespace tbc::test;

namespace {

const char *const models[] = {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet", "resnet-8b",
                              "gpt2-8l",  "llama-8l",  "moe-8l",     "unet-8l",     "gpt2"};

std::string readModel(const std::string &name) {
  std::ostringstream text;
  text << std::ifstream(TBC_SOURCE_DIR "/models/" + name + ".onnx", std::ios::binary).rdbuf();
  return text.str();
}

class MutatedModel : public ::testing::TestWithParam<int> {};

TEST_P(MutatedModel, IsImportedOrRefusedWithAPlace) {
  const int numModels = std::size(models), which = GetParam();
  const int count = std::max(1, numberFromEnvironment("TBC_MUTATIONS", 200) / numModels);
  std::string whole = readModel(models[which]);
  std::string other = readModel(models[(which + 1) % numModels]);
  ASSERT_GT(whole.size(), 10000u);
  TemporaryFolder folder;
  int refused = 0;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    Random random(uint64_t(which) << 32 | uint64_t(i));
    std::string what, mutated = whole;
    for (uint64_t changes = 1 + random.below(3); changes > 0 && !mutated.empty(); --changes) {
      try {
        mutated = mutate(mutated, other, random, what);
      } catch (const std::runtime_error &) { // no message any more: good enough
        break;
      }
    }
    SCOPED_TRACE(std::string(models[which]) + ", mutation " + std::to_string(i) + ": " + what);
    std::string path = folder.write("model.onnx", mutated);
    ImportOutcome outcome = importOutcome(path);
    EXPECT_TRUE(outcome.code == 0 || outcome.code == int(ErrorCode::ModelRejected))
        << outcome.code << ": " << outcome.message;
    if (outcome.code != 0) {
      ++refused;
      EXPECT_TRUE(namesAPlace(outcome.message)) << outcome.message;
    }
    EXPECT_LT(outcome.seconds, maxSeconds());
    worst = std::max(worst, outcome.seconds);
    if (HasFailure()) {
      std::string kept = ::testing::TempDir() + "tbc-mutation-" + models[which] + "-" +
                         std::to_string(i) + ".onnx";
      std::ofstream(kept, std::ios::binary) << mutated;
      FAIL() << "kept as " << kept;
    }
  }
  std::cout << count << " mutations of " << models[which] << ": " << refused << " refused, slowest "
            << worst << " s\n";
  // A mutator that changes nothing, or everything, would prove nothing.
  if (count >= 20) {
    EXPECT_GT(refused, count / 20);
    EXPECT_LT(refused, count);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MutatedModel, ::testing::Range(0, int(std::size(models))));

} // namespace

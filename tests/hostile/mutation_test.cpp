//===- mutation_test.cpp - Mutated real models are refused or imported ----===//
//
// TBC_MUTATIONS sets the total number; 5000 covers the project's promise.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/hostile/Import.h"
#include "tests/hostile/RealModels.h"

#include "gtest/gtest.h"

#include <fstream>
#include <iostream>

using namespace tbc;
using namespace tbc::test;

namespace {

class MutatedModel : public ::testing::TestWithParam<int> {};

TEST_P(MutatedModel, IsImportedOrRefusedWithAPlace) {
  const int which = GetParam(), numModels = int(realModels().size());
  const int count = std::max(1, numberFromEnvironment("TBC_MUTATIONS", 200) / numModels);
  const std::string &name = realModels()[which];
  TemporaryFolder folder;
  int refused = 0;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    std::string what, mutated = mutatedModel(which, i, what);
    SCOPED_TRACE(name + ", mutation " + std::to_string(i) + ": " + what);
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
      std::string kept =
          ::testing::TempDir() + "tbc-mutation-" + name + "-" + std::to_string(i) + ".onnx";
      std::ofstream(kept, std::ios::binary) << mutated;
      FAIL() << "kept as " << kept;
    }
  }
  std::cout << count << " mutations of " << name << ": " << refused << " refused, slowest " << worst
            << " s\n";
  // A mutator without any effect, or one that breaks every file, would make the test void.
  if (count >= 20) {
    EXPECT_GT(refused, count / 20);
    EXPECT_LT(refused, count);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MutatedModel, ::testing::Range(0, int(realModels().size())));

} // namespace

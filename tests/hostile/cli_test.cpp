//===- cli_test.cpp - The corpus through the tbc program ------------------===//

#include "tests/hostile/Corpus.h"
#include "tests/hostile/Import.h"
#include "tests/hostile/Process.h"
#include "tests/hostile/RealModels.h"

#include "runtime/abi/Status.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <iostream>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

constexpr int64_t mebibyte = int64_t(1) << 20;

int64_t peakOfVersion(const TemporaryFolder &folder) {
  ProcessOutcome version = runProcess({TBC_PROGRAM, "--version"}, folder.path(""));
  EXPECT_EQ(version.code, 0);
  return version.peakBytes;
}

/// Bounds: the exit code, one message, ten seconds, and 4 x file size + 64 MiB above tbc's own
/// memory.
TEST(HostileProgram, CheckOfEveryFileKeepsItsBounds) {
  TemporaryFolder folder;
  int64_t base = peakOfVersion(folder);
  double worstSeconds = 0, worstMemory = 0;
  std::string slowest, largest;
  for (const HostileFile &file : hostileFiles()) {
    SCOPED_TRACE(file.name);
    folder.write("model.onnx", file.bytes);
    ProcessOutcome outcome = runProcess({TBC_PROGRAM, "check", "model.onnx"}, folder.path(""));
    // Some sound files have no parameter that the loss depends on.
    bool isTrainable =
        outcome.err.find("the loss depends on no trained parameter") == std::string::npos;
    EXPECT_EQ(outcome.code,
              file.expected.empty() && isTrainable ? 0 : int(ErrorCode::ModelRejected))
        << outcome.err;
    if (!file.expected.empty()) {
      EXPECT_EQ(outcome.out, "");
      EXPECT_EQ(outcome.err.rfind("tbc: model.onnx: ", 0), 0u) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(file.expected));
    }
    EXPECT_LT(outcome.seconds, 10);
    int64_t allowed = base + 4 * int64_t(file.bytes.size()) + 64 * mebibyte;
    EXPECT_LE(outcome.peakBytes, allowed)
        << "peak " << outcome.peakBytes / mebibyte << " MiB, allowed " << allowed / mebibyte;
    if (outcome.seconds > worstSeconds) {
      worstSeconds = outcome.seconds;
      slowest = file.name;
    }
    double share = double(outcome.peakBytes - base) / double(allowed - base);
    if (share > worstMemory) {
      worstMemory = share;
      largest = file.name;
    }
  }
  std::cout << "slowest: " << slowest << ", " << worstSeconds << " s; nearest to the bound on "
            << "memory: " << largest << " at " << worstMemory << " of it; tbc --version takes "
            << base / mebibyte << " MiB\n";
}

/// Runs mutations of the small models through all steps up to a plan.
TEST(HostileProgram, PlanOfMutatedModels) {
  TemporaryFolder folder;
  int planned = 0, refused = 0, count = numberFromEnvironment("TBC_MUTATIONS", 200) / 40;
  double worstSeconds = 0;
  for (size_t which = 0; which < 5; ++which)
    for (int i = 0; i < std::max(1, count); ++i) {
      std::string what;
      folder.write("model.onnx", mutatedModel(which, 100000 + i, what));
      SCOPED_TRACE(realModels()[which] + ", mutation " + std::to_string(100000 + i) + ": " + what);
      ProcessOutcome outcome =
          runProcess({TBC_PROGRAM, "plan", "model.onnx", "--gpus", "4", "--batch", "32", "--json"},
                     folder.path(""));
      worstSeconds = std::max(worstSeconds, outcome.seconds);
      EXPECT_LT(outcome.seconds, 10);
      if (outcome.code == 0) {
        ++planned;
        continue;
      }
      ++refused;
      EXPECT_TRUE(outcome.code == int(ErrorCode::ModelRejected) ||
                  outcome.code == int(ErrorCode::NoFeasiblePlan))
          << outcome.code << ": " << outcome.err;
      EXPECT_EQ(outcome.out, "");
      EXPECT_THAT(outcome.err, HasSubstr("tbc: "));
    }
  std::cout << planned << " planned, " << refused << " refused, slowest " << worstSeconds << " s\n";
  EXPECT_GT(planned, 0);
  EXPECT_GT(refused, 0);
}

} // namespace

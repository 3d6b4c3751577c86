//===- cli_test.cpp - The corpus through the tbc program ------------------===//

#include "tests/hostile/Corpus.h"
#include "tests/hostile/Process.h"

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

/// Exit code, one message, ten seconds, and 4 x file + 64 MiB above what tbc takes anyway.
TEST(HostileProgram, CheckOfEveryFileKeepsItsBounds) {
  TemporaryFolder folder;
  int64_t base = peakOfVersion(folder);
  double worstSeconds = 0, worstMemory = 0;
  std::string slowest, largest;
  for (const HostileFile &file : hostileFiles()) {
    SCOPED_TRACE(file.name);
    folder.write("model.onnx", file.bytes);
    ProcessOutcome outcome = runProcess({TBC_PROGRAM, "check", "model.onnx"}, folder.path(""));
    EXPECT_EQ(outcome.code, file.expected.empty() ? 0 : int(ErrorCode::ModelRejected))
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

} // namespace

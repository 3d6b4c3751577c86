//===- check_memory_test.cpp - tbc run --check-memory ---------------------===//

#include "tests/support/Shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace fs = std::filesystem;
using tbc::test::Outcome;
using tbc::test::shellIn;
using testing::HasSubstr;

// The program's predicted memory equals the planned memory to 2 %, and a rank takes no less.
TEST(CheckMemory, SaysWhatEveryRankTook) {
  std::string folder = (fs::temp_directory_path() / "tbc-memory-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Outcome made =
      shellIn(folder, TBC_PROGRAM
              " plan " TBC_SOURCE_DIR "/models/tiny-gpt2.onnx --seq 16 --precision f32 "
              "--gpus 4 --mesh pp=2,dp=2 --batch 8 --micro-batch 2 -o plan.json && " TBC_PROGRAM
              " compile plan.json -o program");
  ASSERT_EQ(made.code, 0) << made.err;
  Outcome run = shellIn(folder, TBC_RUN_PROGRAM " program --steps 2 --check-memory");
  ASSERT_EQ(run.code, 0) << run.err;
  std::istringstream lines(run.out);
  int ranks = 0;
  for (std::string line; std::getline(lines, line);) {
    int rank = 0, stage = 0;
    double predicted = 0, planned = 0, off = 0, all = 0, real = 0;
    if (std::sscanf(line.c_str(), "%d %d %lf MiB %lf MiB %lf %% %lf MiB %lf MiB", &rank, &stage,
                    &predicted, &planned, &off, &all, &real) != 7)
      continue;
    EXPECT_EQ(rank, ranks++);
    EXPECT_EQ(stage, rank / 2);
    EXPECT_GT(planned, 0);
    EXPECT_NEAR(planned, predicted, 0.02 * predicted + 0.1) << line;
    EXPECT_GE(all, predicted);
    EXPECT_GT(real, planned) << line;
  }
  EXPECT_EQ(ranks, 4) << run.out;
  // The memory of GPUs beside the program does not apply to this process.
  EXPECT_THAT(run.out, HasSubstr("not compared in all: the plan is for other devices"));
  EXPECT_EQ(run.out.find("MFU"), std::string::npos) << run.out;
  EXPECT_THAT(run.out, HasSubstr("real: the most that the process had resident"));
  EXPECT_EQ(shellIn(folder, TBC_RUN_PROGRAM " program --steps 1").out.find("resident,"),
            std::string::npos);
  fs::remove_all(folder);
}

//===- step_log_test.cpp - The log of a run's steps ------------------------===//

#include "runtime/train/StepLog.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tbc::train {
namespace {

StepReport report(double loss) {
  StepReport line;
  line.step = 3;
  line.loss =
      kernels::Tensor::fromDoubles({kernels::DType::F64, {}}, kernels::Arith::Native, {loss});
  line.learningRate = 0.5;
  line.seconds = 0.25;
  line.tokensPerSecond = 1234.4;
  line.epoch = 2;
  line.residentBytes = 3 << 20;
  line.plannedBytes = 3 << 19;
  return line;
}

TEST(StepLog, Lines) {
  EXPECT_EQ(
      lineOf(report(1.5), 10, true),
      "step 3/10  loss 1.500000  lr 0.5  0.250 s  1234 tokens/s  process 3.0 MiB, of it arena "
      "1.5 MiB");
  EXPECT_EQ(jsonOf(report(0.1), false),
            "{\"step\":3,\"loss\":0.10000000000000001,\"lr\":0.5,\"epoch\":2,"
            "\"seconds\":0.250000,\"samples_per_second\":1234.4,\"resident_bytes\":3145728,"
            "\"planned_bytes\":1572864,\"format\":\"tbc-run\",\"version\":1}\n");
  EXPECT_NE(jsonOf(report(NAN), false).find("\"loss\":null"), std::string::npos);
  StepReport residue = report(0);
  residue.loss = kernels::Tensor({kernels::DType::F32, {}}, std::vector<kernels::Residue>{{77}});
  EXPECT_NE(jsonOf(residue, false).find("\"loss_residue\":77,"), std::string::npos);
  EXPECT_NE(scalarsOf(residue, false)[0].first, "loss");
}

TEST(StepLog, WhatIsKnownOfTheStepIsSaid) {
  StepReport whole = report(1.5);
  whole.gradientNorm = 2.25;
  whole.mfu = 0.125;
  EXPECT_EQ(lineOf(whole, 10, true),
            "step 3/10  loss 1.500000  lr 0.5  gradient 2.25  0.250 s  1234 tokens/s  MFU 12.5 %  "
            "process 3.0 MiB, of it arena 1.5 MiB");
  EXPECT_NE(jsonOf(whole, true).find(",\"gradient_norm\":2.25,\"seconds\""), std::string::npos);
  EXPECT_NE(jsonOf(whole, true).find(",\"mfu\":0.125,"), std::string::npos);
  std::vector<Scalar> scalars = scalarsOf(whole, true);
  EXPECT_EQ(scalars[0], Scalar("loss", 1.5f));
  EXPECT_EQ(scalars[3], Scalar("gradient_norm", 2.25f));
}

TEST(StepLog, AResumedLogGoesOnAfterItsCheckpoint) {
  std::string folder = (std::filesystem::temp_directory_path() / "tbc-log-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::string path = folder + "/log";
  // The last line was cut off by a kill.
  std::ofstream(path) << "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"lo";
  {
    auto log = JsonLog::open(path, 1);
    ASSERT_TRUE(bool(log));
    EXPECT_TRUE(log->write("new\n"));
  }
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "{\"step\":1,\"loss\":1}\nnew\n");
  EXPECT_TRUE(bool(JsonLog::open(path, 0)));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
  EXPECT_FALSE(bool(JsonLog::open(folder + "/none/log", 0)));
  std::filesystem::remove_all(folder);
}

} // namespace
} // namespace tbc::train

//===- batch_change_test.cpp - Accumulation grows between epochs ----------===//

#include "tests/support/Shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fs = std::filesystem;
using tbc::test::Outcome;
using tbc::test::readAll;
using tbc::test::shellIn;
using testing::HasSubstr;

namespace {

class BatchChange : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-batch-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::ofstream file(folder + "/tokens.bin", std::ios::binary); // 24 sequences and their labels
    for (int i = 0; i < 24 * 16 + 1; ++i) {
      uint16_t token = uint16_t(10 + i * i % 37);
      file.write(reinterpret_cast<const char *>(&token), 2);
    }
  }
  void TearDown() override { fs::remove_all(folder); }

  void compile(const std::string &name, const std::string &flags) {
    Outcome made = shellIn(
        folder, TBC_PROGRAM " plan " TBC_SOURCE_DIR "/models/tiny-gpt2.onnx "
                            "--seq 16 --precision f32 " +
                    flags + " -o plan.json && " TBC_PROGRAM " compile plan.json -o " + name);
    ASSERT_EQ(made.code, 0) << made.err;
  }
  Outcome run(const std::string &line) {
    return shellIn(folder, TBC_RUN_PROGRAM " " + line + " --data tokens.bin --arith residue");
  }
  /// Returns the log without its timings.
  std::string losses(const std::string &log) {
    std::istringstream lines(readAll(folder + "/" + log));
    std::string line, text;
    while (std::getline(lines, line))
      text += line.substr(0, line.find(",\"seconds\"")) + "\n";
    return text;
  }

  std::string folder;
};

TEST_F(BatchChange, IsAnotherProgramFromTheEndOfAnEpochOn) {
  compile("small", "--gpus 2 --mesh dp=2 --batch 4 --micro-batch 2");
  compile("large", "--gpus 2 --mesh dp=2 --batch 12 --micro-batch 2"); // three micro-batches
  compile("piped", "--gpus 2 --mesh pp=2 --batch 12 --micro-batch 4");
  // An epoch of six steps, then epochs of two.
  Outcome first = run("small --epochs 1 --checkpoint saved --log log");
  ASSERT_EQ(first.code, 0) << first.err;
  fs::copy(folder + "/saved", folder + "/copy", fs::copy_options::recursive);
  Outcome then = run("large --epochs 3 --checkpoint saved --resume --log log --every 1 --keep 0");
  ASSERT_EQ(then.code, 0) << then.err;
  std::string log = losses("log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 6 + 2 + 2) << log;
  EXPECT_THAT(log, HasSubstr("\"step\":6,"));
  for (const char *line : {"\"step\":8,", "\"step\":10,"})
    EXPECT_THAT(log, HasSubstr(line));
  EXPECT_NE(log.find("\"epoch\":2"), std::string::npos) << log;

  // Batches are the same under any plan, and a checkpoint stores where its batches began.
  Outcome other = run("piped --epochs 3 --checkpoint copy --resume --log other");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(losses("other"), log.substr(log.find("{\"step\":7")));
  fs::remove_all(folder + "/saved/step-00000010");
  fs::remove_all(folder + "/saved/step-00000009");
  fs::remove_all(folder + "/saved/step-00000008");
  Outcome again = run("piped --epochs 3 --checkpoint saved --resume --log again");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(losses("again"), log.substr(log.find("{\"step\":8")));
}

TEST_F(BatchChange, WithinAnEpochIsRefused) {
  compile("small", "--gpus 1 --batch 4");
  compile("large", "--gpus 1 --batch 12 --micro-batch 4");
  ASSERT_EQ(run("small --steps 4 --checkpoint saved").code, 0);
  Outcome refused = run("large --steps 8 --checkpoint saved --resume");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("global batch of 4, this run has 12"));
  EXPECT_THAT(refused.err, HasSubstr("step 4 is within epoch 1, which ends with step 6"));
}

} // namespace

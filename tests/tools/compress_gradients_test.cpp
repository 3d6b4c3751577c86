//===- compress_gradients_test.cpp - Runs with top-k gradients ------------===//
//
// sparse_sum_test checks the arithmetic. Here real processes are checked: their learning, their
// messages, and their checkpoints.
//
//===----------------------------------------------------------------------===//

#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fs = std::filesystem;
using tbc::test::Outcome;
using tbc::test::readAll;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

class CompressedRun : public tbc::test::Run {
protected:
  static void SetUpTestSuite() {
    Run::SetUpTestSuite();
    // A text of period four: the next token follows from the last.
    std::ofstream file(shared + "/tokens.bin", std::ios::binary);
    for (int i = 0; i < 2000; ++i) {
      uint16_t token = uint16_t(10 + i % 4);
      file.write(reinterpret_cast<const char *>(&token), 2);
    }
  }

  /// Returns the folder of tiny-gpt2 compiled with a plan of `flags`.
  static std::string program(const std::string &flags) {
    return Run::program("tiny-gpt2", "--seq 16 " + flags);
  }
  static std::string replicas() { return program("--gpus 2 --mesh dp=2"); }

  Outcome run(const std::string &program, const std::string &flags,
              const std::string &environment = "") {
    return Run::run(program, "--data " + shared + "/tokens.bin --init-weights 1 " + flags,
                    environment);
  }

  double lossAt(const std::string &log, int step) {
    std::string text = losses(log);
    size_t at = text.find("\"step\":" + std::to_string(step) + ",\"loss\":");
    EXPECT_NE(at, std::string::npos);
    return std::strtod(text.c_str() + text.find("loss", at) + 6, nullptr);
  }
};

TEST_F(CompressedRun, Learns) {
  // Clipping comes after the sum, and applies to the sent elements.
  for (auto [flags, rate] :
       {std::pair("--gpus 2 --mesh dp=2", "0.01"),
        std::pair("--gpus 2 --mesh fsdp=2 --micro-batch 2", "0.01"),
        std::pair("--gpus 2 --mesh dp=2 --optimizer sgd-momentum --clip-norm 1", "0.2")}) {
    std::string plan = program(flags), common = "--steps 40 --warmup-steps 3 --lr ";
    common += rate;
    for (const char *log : {"one", "two"}) {
      Outcome outcome = run(plan, common + " --compress-gradients topk:0.02 --log " + log);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.err, "");
    }
    EXPECT_EQ(losses("one"), losses("two")) << flags;
    ASSERT_EQ(run(plan, common + " --log dense").code, 0);
    EXPECT_NE(losses("one"), losses("dense"));
    EXPECT_GT(lossAt("one", 1), 5);
    EXPECT_LT(lossAt("one", 40), 1) << flags;
    for (const char *log : {"one", "two", "dense"})
      fs::remove(folder + "/" + log);
  }
}

TEST_F(CompressedRun, OfAllElementsIsTheRunWithout) {
  ASSERT_EQ(run(replicas(), "--steps 5 --lr 0.01 --log dense").code, 0);
  Outcome outcome = run(replicas(), "--steps 5 --lr 0.01 --compress-gradients topk:1 --log all");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("smaller compressed than whole; all are sent whole"));
  EXPECT_THAT(losses("dense"), HasSubstr("\"step\":5"));
  EXPECT_EQ(losses("all"), losses("dense"));
}

TEST_F(CompressedRun, GoesOnBitForBitAfterAKill) {
  for (const std::string &plan :
       {replicas(), program("--gpus 4 --mesh dp=2,fsdp=2 --micro-batch 1")}) {
    std::string common = "--steps 8 --lr 0.01 --compress-gradients topk:0.01 ";
    ASSERT_EQ(run(plan, common + "--log whole").code, 0);
    for (const char *async : {"", " --async-checkpoint"}) {
      std::string flags =
          common + "--checkpoint saved --every 3 --resume --log log" + std::string(async);
      Outcome killed = run(plan, flags, "TBC_KILL_AT=renamed:0");
      EXPECT_EQ(killed.code, 6) << killed.err;
      Outcome resumed = run(plan, flags);
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_THAT(resumed.err, AllOf(HasSubstr("going on after step"), Not(HasSubstr("warning"))));
      EXPECT_EQ(losses("log"), losses("whole"));
      fs::remove_all(folder + "/saved");
      fs::remove(folder + "/log");
    }
    fs::remove(folder + "/whole");
  }
}

TEST_F(CompressedRun, WhatAnotherRunKeptBackIsDroppedAloud) {
  std::string common = "--checkpoint saved --keep 0 --resume ";
  ASSERT_EQ(run(replicas(), common + "--steps 4 --lr 0.01 --compress-gradients topk:0.01").code, 0);
  std::string whole = "--steps 6 --lr 0.01 --compress-gradients topk:0.01 --log whole";
  ASSERT_EQ(run(replicas(), whole).code, 0);
  auto resume = [&](const std::string &plan, const std::string &flags, const char *word) {
    fs::remove_all(folder + "/copy");
    fs::copy(folder + "/saved", folder + "/copy", fs::copy_options::recursive);
    fs::remove(folder + "/log");
    Outcome outcome =
        run(plan, "--steps 6 --lr 0.01 --checkpoint copy --resume --log log " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
    std::string all = losses("whole");
    EXPECT_NE(losses("log"), all.substr(all.find("{\"step\":5")));
  };
  const char *dropped = "the checkpoint's residuals of compression are dropped";
  resume(replicas(), "", dropped);
  resume(replicas(), "--compress-gradients topk:0.02", dropped);
  resume(program("--gpus 2 --mesh fsdp=2"), "--compress-gradients topk:0.01", dropped);
  resume(program("--gpus 1"), "", dropped);
  fs::remove_all(folder + "/saved");
  ASSERT_EQ(run(replicas(), common + "--steps 4 --lr 0.01").code, 0);
  resume(replicas(), "--compress-gradients topk:0.01", "the residuals of compression begin at 0");
}

TEST_F(CompressedRun, ADamagedResidualIsNamed) {
  ASSERT_EQ(run(replicas(), "--steps 2 --checkpoint saved --compress-gradients topk:0.01").code, 0);
  // This file of a replica contains only the residual.
  std::string path = folder + "/saved/step-00000002/rank-00001.safetensors";
  std::string bytes = readAll(path);
  EXPECT_THAT(bytes.substr(0, 4000), HasSubstr("gradient residual of stage 0, "));
  bytes.back() = char(bytes.back() ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  Outcome outcome = run(replicas(), "--steps 4 --checkpoint saved --resume "
                                    "--compress-gradients topk:0.01");
  EXPECT_EQ(outcome.code, 9);
  EXPECT_THAT(outcome.err, HasSubstr("rank-00001.safetensors is damaged"));
}

TEST_F(CompressedRun, IsRefusedWhereItHasNoMeaning) {
  struct Refusal {
    std::string program, flags, word;
  };
  std::string topk = "--compress-gradients topk:0.01 ";
  for (const Refusal &refusal : std::vector<Refusal>{
           {replicas(), "--compress-gradients topk", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients topk:", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients topk:0", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients topk:1.5", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients topk:nan", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients topk:0.1x", "it wants topk:SHARE"},
           {replicas(), "--compress-gradients rank:4", "it wants topk:SHARE"},
           {replicas(), topk + "--arith residue251", "it goes with --arith native"},
           {replicas(), topk + "--arith f64", "it goes with --arith native"},
           {replicas(), topk + "--comm-dtype bf16", "leave out --comm-dtype bf16"},
           {program("--gpus 2 --mesh tp=2"), topk, "plan with an axis dp or fsdp"},
           {program("--gpus 1"), topk, "plan with an axis dp or fsdp"},
           {program("--gpus 2 --mesh dp=2 --precision f16"), topk, "scales its loss"}}) {
    Outcome outcome = run(refusal.program, "--steps 1 " + refusal.flags);
    EXPECT_EQ(outcome.code, 2) << refusal.flags << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(refusal.word)) << refusal.flags;
  }
}

} // namespace

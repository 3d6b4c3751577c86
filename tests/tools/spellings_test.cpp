//===- spellings_test.cpp - Spellings of other frameworks -----------------===//

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
using tbc::test::shellIn;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

class Spellings : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-spellings-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder); }

  Outcome tbc(const std::string &arguments) { return shellIn(folder, TBC_PROGRAM " " + arguments); }
  Outcome plan(const std::string &arguments) {
    return tbc("plan " TBC_SOURCE_DIR "/models/tiny-gpt2.onnx --batch 8 " + arguments);
  }

  std::string folder;
};

} // namespace

TEST_F(Spellings, OfStrategiesGiveTheSamePlan) {
  for (auto [theirs, ours] : {std::pair("FULL_SHARD", "fsdp"),
                              {"SHARD_GRAD_OP", "shard-grad-op"},
                              {"NO_SHARD", "ddp"},
                              {"deepspeed_stage_3", "zero3"},
                              {"ZeRO-1", "zero1"},
                              {"HYBRID_SHARD", "hybrid-shard"},
                              {"tensor_parallel", "tp"}}) {
    Outcome a = plan(std::string("--gpus 4 --json --strategy ") + theirs);
    Outcome b = plan(std::string("--gpus 4 --json --strategy ") + ours);
    EXPECT_EQ(a.code, 0) << a.err;
    EXPECT_EQ(a.out, b.out) << theirs;
  }
}

TEST_F(Spellings, OfPrecisionsGiveTheSamePlan) {
  for (auto [theirs, ours] : {std::pair("16-mixed", "f16"),
                              {"bf16-mixed", "bf16"},
                              {"fp32", "f32"},
                              {"bfloat16", "bf16"},
                              {"32-true", "f32"}}) {
    Outcome a = plan(std::string("--gpus 2 --json --precision ") + theirs);
    Outcome b = plan(std::string("--gpus 2 --json --precision ") + ours);
    EXPECT_EQ(a.code, 0) << a.err;
    EXPECT_EQ(a.out, b.out) << theirs;
  }
  // Lightning's bf16-true keeps no master weights; tbc's bf16 does.
  EXPECT_EQ(plan("--gpus 2 --precision bf16-true").code, 2);
}

TEST_F(Spellings, OfMeshesGiveTheSamePlan) {
  const Outcome ours = plan("--gpus 4 --json --mesh fsdp=2,tp=2");
  for (const char *theirs :
       {"dp_shard=2,tensor=2", "'[[2,2],[\"fsdp\",\"tp\"]]'", "fsdp=-1,tp=2", "fsdp=2,model=-1"}) {
    Outcome a = plan(std::string("--gpus 4 --json --mesh ") + theirs);
    EXPECT_EQ(a.code, 0) << a.err;
    EXPECT_EQ(a.out, ours.out) << theirs;
  }
}

TEST_F(Spellings, MisspeltValuesGetASuggestion) {
  for (auto [flag, closest] : {std::pair("--strategy fspd", "did you mean fsdp?"),
                               {"--strategy FUL_SHARD", "did you mean fsdp?"},
                               {"--precision bf15", "did you mean bf16?"},
                               {"--optimizer adamv", "did you mean adamw?"},
                               {"--schedule 1f1c", "did you mean 1f1b?"},
                               {"--context rign", "did you mean ring?"},
                               {"--sequence-order zigzak", "did you mean zigzag?"},
                               {"--mesh fdsp=4", "did you mean fsdp?"},
                               {"--cluster h100-sxn", "h100-sxm"}}) {
    Outcome out = plan(std::string("--gpus 4 ") + flag);
    EXPECT_EQ(out.code, 2) << flag;
    EXPECT_THAT(out.err, HasSubstr(closest)) << flag;
    EXPECT_THAT(out.out, IsEmpty()) << flag;
  }
  EXPECT_THAT(tbc("compile p.json -o p --target coda").err, HasSubstr("did you mean cuda?"));
  EXPECT_THAT(tbc("run p --kernels natve").err, HasSubstr("did you mean native?"));
}

TEST_F(Spellings, MisspeltFlagsOfExplainGetASuggestion) {
  for (const char *flag :
       {"memory", "comms", "kernels", "layers", "tensor", "why", "diff", "derive", "model"}) {
    const std::string word = flag;
    const std::string misspelt = "--" + word.substr(0, 1) + word.substr(2);
    Outcome out = tbc("explain plan.json " + misspelt);
    EXPECT_EQ(out.code, 2) << misspelt;
    EXPECT_THAT(out.err, HasSubstr("did you mean --" + word + "?")) << misspelt;
  }
}

TEST_F(Spellings, AnOutputThatCannotBeIsSaidBeforeTheSearch) {
  Outcome out = shellIn(folder, TBC_PROGRAM " plan no-such-model.onnx --gpus 4 -o no/such/p.json");
  EXPECT_EQ(out.code, 1);
  EXPECT_THAT(out.err, HasSubstr("cannot create no/such/p.json: No such file or directory"));
  ASSERT_EQ(plan("--gpus 2 -o p.json").code, 0);
  EXPECT_TRUE(fs::exists(folder + "/p.json"));
  for (const auto &entry : fs::directory_iterator(folder))
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
}

TEST_F(Spellings, APlanEndsWithTheCommandsThatComeNext) {
  Outcome out = plan("--gpus 2 --precision f32 --seq 16 --mesh dp=2 -o p.json");
  ASSERT_EQ(out.code, 0) << out.err;
  const size_t next = out.out.find("\nnext: ");
  ASSERT_NE(next, std::string::npos);
  EXPECT_EQ(out.out.substr(next), "\nnext: tbc verify p.json, tbc compile p.json -o p\n");
  EXPECT_EQ(tbc("verify p.json").code, 0);
  EXPECT_EQ(tbc("compile p.json -o p").code, 0);
  EXPECT_TRUE(fs::exists(folder + "/p/program.json"));
  EXPECT_THAT(plan("--gpus 2 --precision f32 --seq 16 --mesh dp=2 -o 'my plan.json'").out,
              HasSubstr("tbc verify 'my plan.json', tbc compile 'my plan.json' -o 'my plan'\n"));
  ASSERT_EQ(plan("--gpus 2 --precision f32 --seq 16 --mesh dp=2 -o ./-p.json").code, 0);
  EXPECT_THAT(shellIn(folder, TBC_PROGRAM " plan -p.json --gpus 2").err,
              HasSubstr("unknown flag -p.json; write the file of this name as ./-p.json"));
  EXPECT_THAT(plan("--gpus 2").out, HasSubstr("-o plan.json"));
}

TEST_F(Spellings, TheSimplestOfEqualsIsTakenUnlessTheFastestIsAsked) {
  const std::string job = "plan " TBC_SOURCE_DIR "/models/gpt2.onnx --gpus 8 ";
  Outcome simplest = tbc(job), fastest = tbc(job + "--tie-percent 0");
  EXPECT_THAT(simplest.out, HasSubstr("plan: dp=8, DDP, "));
  EXPECT_THAT(simplest.out, HasSubstr("--tie-percent 0 takes fsdp=8, with "));
  EXPECT_THAT(simplest.out, HasSubstr("runners-up\n  fsdp=8, "));
  EXPECT_THAT(fastest.out, HasSubstr("plan: fsdp=8, "));
  EXPECT_THAT(fastest.out, HasSubstr("  dp=8, DDP, "));
  EXPECT_THAT(fastest.out, Not(HasSubstr("--tie-percent")));
  EXPECT_EQ(tbc(job + "--tie-percent 101").code, 2);
  EXPECT_EQ(tbc(job + "--tie-percent few").code, 2);
}

TEST_F(Spellings, TensorsAreFoundByTheModuleThatReadsThem) {
  Outcome made = plan("--gpus 2 -o p.json");
  ASSERT_EQ(made.code, 0) << made.err;
  Outcome tied = tbc("explain p.json --tensor 'transformer.wte*'");
  EXPECT_EQ(tied.code, 0) << tied.err;
  EXPECT_THAT(tied.out, HasSubstr("lm_head.weight"));
  Outcome memory = tbc("explain p.json --memory");
  EXPECT_THAT(memory.out, HasSubstr("transformer.h.*."));
}

//===- usage_test.cpp - Help texts and usage errors -----------------------===//

#include "tests/support/Shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace fs = std::filesystem;
using tbc::test::Outcome;
using tbc::test::shellIn;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

class Usage : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-usage-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder); }

  Outcome tbc(const std::string &arguments) { return shellIn(folder, TBC_PROGRAM " " + arguments); }
  static std::string model(const std::string &name) {
    return std::string(TBC_SOURCE_DIR) + "/models/" + name + ".onnx";
  }
  /// Compiles tiny-gpt2 for two ranks into "program".
  void compile() {
    Outcome made = shellIn(folder, TBC_PROGRAM " plan " + model("tiny-gpt2") +
                                       " --gpus 2 --mesh dp=2 --seq 16 --batch 4 --precision f32 "
                                       "-o plan.json && " TBC_PROGRAM
                                       " compile plan.json --no-kernels -o program");
    ASSERT_EQ(made.code, 0) << made.err;
  }

  std::string folder;
};

int64_t numLines(const std::string &text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(Usage, HelpFitsIntoATerminal) {
  for (const char *command :
       {"", "plan", "check", "explain", "verify", "compile", "run", "checkpoint consolidate",
        "program show", "new", "cluster", "doctor", "calibrate"}) {
    Outcome help = tbc(std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("--help")) << command;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << command << ": " << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << command << ": " << line;
    }
    EXPECT_THAT(help.out, Not(HasSubstr("\n\n\n"))) << command;
  }
}

TEST_F(Usage, HelpLosesNoWord) {
  Outcome help = tbc("plan --help");
  std::string words;
  std::istringstream text(help.out);
  for (std::string word; text >> word;)
    words += word + " ";
  EXPECT_THAT(words, HasSubstr("Hold an input constant, INPUT=ones|zeros, or keep it, INPUT=input "
                               "(repeatable) --tie"));
  EXPECT_THAT(words, HasSubstr("shard-grad-op, hybrid-shard,tp,pp,hybrid} Pin the strategy"));
}

TEST_F(Usage, NumbersAreExplained) {
  std::string plan = "plan " + model("tiny-mlp") + " ";
  for (auto [arguments, message] :
       {std::pair("--gpus 0", "--gpus: \"0\" is not a whole number from 1 to 2^40"),
        std::pair("--gpus eight", "--gpus: \"eight\" is not a whole number"),
        std::pair("--gpus 2.5", "--gpus: \"2.5\" is not a whole number"),
        std::pair("--gpus 4 --zero 4", "--zero: \"4\" is not a whole number from 0 to 3"),
        std::pair("--gpus 4 --clip-norm -1", "--clip-norm is out of range: it must be above 0"),
        std::pair("--gpus 4 --label-smoothing 2", "it must be at least 0 and at most 1"),
        std::pair("--gpus 4 --beta1 1",
                  "--beta1 is out of range: it must be at least 0 and below 1"),
        std::pair("--gpus 4 --tie-percent nan", "\"nan\" is not a number from 0 to 100"),
        std::pair("--gpus 4 --time-limit nan", "\"nan\" is not a number above 0"),
        std::pair("--gpus 4 --time-limit 0", "\"0\" is not a number above 0 [TBC0202]")}) {
    Outcome outcome = tbc(plan + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  Outcome rate = tbc("run nothing --lr -1");
  EXPECT_EQ(rate.code, 2);
  EXPECT_THAT(rate.err, StartsWith("tbc: --lr: \"-1\" is not a number of at least 0 [TBC0202]\n"));
  EXPECT_EQ(tbc("run nothing --lr nan").code, 2);
}

TEST_F(Usage, SequencesAreNotTakenSilently) {
  Outcome both = tbc("check " + model("tiny-gpt2") + " --seq 16 --dim seq=8");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--seq 16 contradicts --dim seq=8, which is the sequence"));
  EXPECT_EQ(tbc("check " + model("tiny-gpt2") + " --seq 16 --dim seq=16").code, 0);
  Outcome idle = tbc("check " + model("tiny-mlp") + " --seq 16");
  EXPECT_EQ(idle.code, 0);
  EXPECT_THAT(idle.out + idle.err, HasSubstr("--seq 16 changes nothing: no input has a symbolic"));
}

// A container's root may replace /dev/null.
TEST_F(Usage, OutputsReplaceFilesAlone) {
  std::string plan = " --gpus 2 --mesh dp=2 --batch 4 -o ";
  fs::copy_file(model("tiny-mlp"), folder + "/model.onnx");
  ASSERT_EQ(tbc("plan model.onnx" + plan + "plan.json").code, 0);
  Outcome piped =
      shellIn(folder, "mkfifo pipe && (cat pipe > read & " TBC_PROGRAM
                      " report plan.json -o pipe && wait) && ls -l pipe && head -c 15 read");
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_THAT(piped.out, StartsWith("p"));
  EXPECT_THAT(piped.out, testing::EndsWith("<!doctype html>"));
  Outcome linked = shellIn(folder, "ln -s plan.json link && " TBC_PROGRAM " plan model.onnx" +
                                       plan + "link && test -L link");
  EXPECT_EQ(linked.code, 0) << linked.err;
  for (const std::string &command :
       {"plan model.onnx" + plan + "model.onnx", std::string("report plan.json -o ./plan.json"),
        std::string("timeline plan.json -o plan.json"),
        std::string("export plan.json --to dot -o plan.json")}) {
    Outcome lost = tbc(command);
    EXPECT_EQ(lost.code, 1) << command;
    EXPECT_THAT(lost.err, HasSubstr("it is an input, and would be lost; name another [TBC0101]"));
  }
  Outcome into = tbc("plan model.onnx" + plan + ".");
  EXPECT_THAT(into.err, HasSubstr("cannot write .: it is a folder; name a file [TBC0101]"));
}

TEST_F(Usage, AFileThatPeopleTakeForAModelIsNamed) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string length = std::string(1, char(header.size())) + std::string(7, '\0');
  for (const auto &[bytes, words] : std::map<std::string, const char *>{
           {"PK\x03\x04 archive/data.pkl",
            "it is a zip file, as PyTorch saves weights; torch.onnx."},
           {length + header + "0123", "it is a safetensors file, which has weights alone; torch."},
           {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull fetches"},
           {"<!DOCTYPE html><html>", "it is HTML or XML; did a download fail?"},
           {R"({"accumulation": 1, "alternatives": []})", "it is a plan; tbc explain reads it"},
           {R"({"model_type": "llama"})", "a configuration of transformers; tbc new --from writes"},
           {"[1, 2]", "it is JSON"}}) {
    std::ofstream(folder + "/other", std::ios::binary) << bytes;
    Outcome outcome = tbc("plan other --gpus 2");
    EXPECT_EQ(outcome.code, 3) << words;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("tbc: other: not an ONNX model: it is "),
                                   HasSubstr(words), HasSubstr("[TBC0301]")));
  }
}

TEST_F(Usage, DamagedPlansHaveOneCode) {
  shellIn(folder, "echo {} > plan.json");
  for (const char *command : {"report plan.json -o x", "timeline plan.json -o x",
                              "export plan.json --to dot -o x", "explain plan.json"})
    EXPECT_THAT(tbc(command).err, HasSubstr("[TBC0206]")) << command;
}

TEST_F(Usage, AMisspeltFlagIsOneSentence) {
  Outcome flag = tbc("plan model.onnx --gpus 8 --mehs dp=8");
  EXPECT_EQ(flag.code, 2);
  EXPECT_EQ(
      flag.err,
      "tbc: unknown flag --mehs; did you mean --mesh? [TBC0201]\ntbc: see 'tbc plan --help'\n");
  Outcome stranger = tbc("run program extra --steps 2");
  EXPECT_EQ(stranger.err, "tbc: unexpected argument extra [TBC0201]\ntbc: see 'tbc run --help'\n");
  Outcome unlike = tbc("run program --quux 1 2");
  EXPECT_EQ(unlike.err, "tbc: unknown flag --quux [TBC0201]\ntbc: see 'tbc run --help'\n");
  Outcome command = tbc("plam");
  EXPECT_EQ(command.code, 2);
  EXPECT_EQ(command.err,
            "tbc: unknown subcommand plam; did you mean plan? [TBC0201]\ntbc: see 'tbc --help'\n");
  EXPECT_THAT(tbc("").err, AllOf(StartsWith("tbc: a subcommand is required: "), HasSubstr("plan, "),
                                 HasSubstr("[TBC0203]")));
  EXPECT_THAT(tbc("checkpoint").err, HasSubstr("a subcommand is required: consolidate"));
  // Words of other tools.
  for (auto [theirs, ours] : {std::pair("--tp", "--pin tp=N"),
                              {"--tensor-model-parallel-size=2", "--pin tp=N"},
                              {"--global-batch-size", "--batch"},
                              {"--micro-batch-size", "--micro-batch"},
                              {"--zero-stage", "--zero"},
                              {"--bf16", "--precision bf16"}}) {
    const std::string given(theirs), word = given.substr(0, given.find('='));
    EXPECT_THAT(tbc("plan model.onnx --gpus 8 " + given + " 2").err,
                StartsWith("tbc: unknown flag " + word + "; use " + ours + " [TBC0201]"));
  }
  EXPECT_THAT(tbc("run program --tp 2").err, Not(HasSubstr("--pin")));
  EXPECT_THAT(tbc("diff a.json b.json").err,
              HasSubstr("unknown subcommand diff; use tbc explain PLAN --diff OTHER [TBC0201]"));
  EXPECT_THAT(tbc("compare a.json b.json").err, HasSubstr("use tbc explain PLAN --diff OTHER"));
  EXPECT_THAT(tbc("train program").err, HasSubstr("unknown subcommand train; use tbc run "));
}

TEST_F(Usage, FlagsThatDoNotGoTogetherAreNamed) {
  shellIn(folder, "echo {} > plan.json; mkdir folder");
  for (auto [command, message] :
       {std::pair("explain plan.json --comms --memory",
                  "--memory and --comms do not go together; give one of them [TBC0204]"),
        std::pair("plan model.onnx --gpus 8 --gpus 4",
                  "--gpus is given several times; give it once [TBC0202]"),
        std::pair("plan model.onnx --gpus 8 --mesh ''", "--mesh: the value is empty [TBC0202]"),
        std::pair("plan model.onnx --mesh= --gpus=8", "--mesh: the value is empty [TBC0202]"),
        std::pair("--quux", "unknown flag --quux [TBC0201]"),
        std::pair("run program --log ''", "--log: the value is empty [TBC0202]"),
        std::pair("report plan.json --profile-rank -1 --against x -o y",
                  "--profile-rank: \"-1\" is not a whole number from 0 to 2^40 [TBC0202]"),
        std::pair("compile plan.json --emit-ir-after tbc-bukket",
                  "\"tbc-bukket\" is not one of all, tbc-apply-plan"),
        std::pair("run program --token-bits 8", "--token-bits: \"8\" is not one of 16, 32"),
        std::pair("explain folder", "cannot read folder: it is a folder; name a file [TBC0205]"),
        std::pair("new --from folder -o x", "cannot read folder: it is a folder; name a file"),
        std::pair("run plan.json", "plan.json is no Program: it is a file; name a folder")}) {
    Outcome outcome = tbc(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << command;
  }
  Outcome limit = tbc("plan " + model("tiny-mlp") + " --gpus 4 --memory-limit -5GiB");
  EXPECT_THAT(limit.err, HasSubstr("--memory-limit: \"-5GiB\" is not an amount of memory"));
}

TEST_F(Usage, ClustersThatCannotBeLoadedHaveOneCode) {
  const std::string gpt = model("tiny-gpt2");
  for (const std::string &command :
       {std::string("cluster nope"), "plan " + gpt + " --gpus 2 --cluster nope",
        "size " + gpt + " --seq 16 --tokens 1M --gpus-to 2 --cluster nope"}) {
    Outcome outcome = tbc(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("[TBC0209]")) << command;
  }
}

TEST_F(Usage, WrongConfigurationsOfOthersAreNamed) {
  const std::string judge = "judge --gpus 4 --model " + model("tiny-gpt2");
  Outcome zero = tbc(judge + " 'pretrain_gpt.py --tensor-model-parallel-size 0'");
  EXPECT_EQ(zero.code, 4);
  EXPECT_THAT(zero.out, HasSubstr("Value: --tensor-model-parallel-size is \"0\", no positive"));
  shellIn(folder, "touch empty.json");
  Outcome empty = tbc(judge + " empty.json");
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("empty.json: the text is not JSON, or is cut off [TBC0200]"));
}

TEST_F(Usage, ACalibrationLooksAtItsOutputFirst) {
  shellIn(folder, "echo 1 > steps.csv");
  Outcome nowhere = tbc("calibrate --quick -o nowhere/here.toml");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, StartsWith("tbc: cannot create nowhere/here.toml"));
  Outcome input = tbc("calibrate --from-run steps.csv --plan plan.json -o steps.csv");
  EXPECT_THAT(input.err, HasSubstr("it is an input, and would be lost"));
}

TEST_F(Usage, AStoppedCalibrationWritesNoFile) {
  // With job control (-m) a background process takes the signal of Ctrl-C.
  std::ofstream(folder + "/stop.sh")
      << "set -m; " TBC_PROGRAM " calibrate --quick --ranks 2 -o here.toml & job=$!\n"
         "until [ $(wc -w < /proc/$job/task/$job/children) = 2 ]; do sleep 0.05; done\n"
         "sleep 0.3; kill -INT $job; wait $job\n";
  Outcome stopped = shellIn(folder, "timeout 120 bash stop.sh");
  EXPECT_EQ(stopped.code, 8) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("stopped on request; no measurement is kept"));
  EXPECT_FALSE(fs::exists(folder + "/here.toml"));
}

TEST_F(Usage, APipeIsNoModel) {
  Outcome pipe = shellIn(folder, "mkfifo pipe && timeout 20 " TBC_PROGRAM " check pipe");
  EXPECT_EQ(pipe.code, 2) << pipe.err;
  EXPECT_THAT(pipe.err, HasSubstr("cannot read pipe: it is a pipe, not a regular file [TBC0205]"));
  Outcome folderOf = tbc("plan . --gpus 2");
  EXPECT_THAT(folderOf.err, HasSubstr("it is a folder, not a regular file [TBC0205]"));
}

TEST_F(Usage, HelpAloneListsTheCommands) {
  Outcome all = tbc("--help"), help = tbc("help");
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(help.out.substr(0, all.out.size()), all.out);
  EXPECT_THAT(help.out, HasSubstr("Topics:\n  errors "));
}

TEST_F(Usage, AnUnknownExecutorIsAFlagValue) {
  const std::string gpt = model("tiny-gpt2");
  for (const std::string &command :
       {"plan " + gpt + " --gpus 2", "judge bf16=True --gpus 2 --model " + gpt}) {
    Outcome outcome = tbc(command + " --executor Megatron-LM");
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("did you mean megatron? [TBC0202]")) << command;
  }
}

TEST_F(Usage, WhatIsNoProgramIsSaid) {
  Outcome run = tbc("run " + model("tiny-mlp"));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("tiny-mlp.onnx is no Program"));
  EXPECT_THAT(run.err, HasSubstr("name a folder that tbc compile wrote"));
}

TEST_F(Usage, AModelThatIsGoneIsMissedOnce) {
  Outcome made = shellIn(folder, "cp " + model("tiny-mlp") +
                                     " m.onnx && " TBC_PROGRAM
                                     " plan m.onnx --gpus 2 --mesh dp=2 --batch 4 --precision f32 "
                                     "-o m.json && " TBC_PROGRAM
                                     " compile m.json --no-kernels -o program && rm m.onnx");
  ASSERT_EQ(made.code, 0) << made.err;
  Outcome gone = tbc("run program");
  EXPECT_EQ(gone.code, 2);
  EXPECT_THAT(gone.err, StartsWith("tbc: cannot read"));
  EXPECT_THAT(gone.err, HasSubstr("m.onnx: No such file or directory"));
  EXPECT_EQ(numLines(gone.err), 1) << gone.err;
  EXPECT_EQ(tbc("run program --init-weights 1").code, 0);
}

// Otherwise every rank would find the same error, some of them after others have begun, or after
// the last step.
TEST_F(Usage, FilesAreLookedAtOnceBeforeARun) {
  ASSERT_NO_FATAL_FAILURE(compile());
  ASSERT_EQ(shellIn(folder, "touch file && mkdir folder").code, 0);
  for (auto [flags, code, message] :
       {std::tuple("--data nothing.bin", 2, "cannot read nothing.bin"),
        std::tuple("--epochs 1", 2, "--epochs: this data has no end; give --steps"),
        std::tuple("--profile t --profile-step 9", 2, "--profile-step 9: this run has the steps"),
        std::tuple("--init-weights folder", 2, "the folder folder has neither model.safetensors"),
        std::tuple("--eval-data nothing.bin", 2, "--eval-data: cannot read nothing.bin"),
        std::tuple("--log nowhere/log.jsonl", 1, "--log: cannot write into nowhere: No such file"),
        std::tuple("--log folder", 1, "--log folder is a folder; name a file"),
        std::tuple("--log -", 2, "--log -: it needs a file; --json prints steps to standard out"),
        std::tuple("--profile nowhere/trace.json", 1, "--profile: cannot write into nowhere"),
        std::tuple("--tensorboard file/events", 1, "--tensorboard: cannot make the folder"),
        std::tuple("--checkpoint file", 1, "--checkpoint: cannot make the folder file"),
        std::tuple("--async-checkpoint", 2, "--async-checkpoint needs --checkpoint DIR")}) {
    Outcome run = tbc(std::string("run program ") + flags);
    EXPECT_EQ(run.code, code) << flags << run.err;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(numLines(run.err), 1) << run.err;
    EXPECT_THAT(run.out, Not(HasSubstr("step 1"))) << flags;
  }
  Outcome good = tbc("run program --checkpoint saved --log log.jsonl --tensorboard events");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_TRUE(fs::exists(folder + "/saved/step-00000001"));
  Outcome piped = shellIn(folder, "mkfifo pipe && (cat pipe > read & " TBC_PROGRAM
                                  " run program --log pipe && wait) && test -p pipe && cat read");
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("{\"step\":1,"));
  Outcome full = shellIn(folder, "trap '' XFSZ; ulimit -f 4; " TBC_PROGRAM
                                 " run program --steps 3 --profile trace.json");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.err, HasSubstr("--profile: cannot write trace.json: File too large"));
  EXPECT_EQ(shellIn(folder, "ls trace.json*").out, "") << "a part of a profile";
  Outcome joined = shellIn(folder, "trap '' XFSZ; ulimit -f 4; " TBC_PROGRAM
                                   " checkpoint consolidate saved -o all.safetensors");
  EXPECT_EQ(joined.code, 1);
  EXPECT_THAT(joined.err, HasSubstr("cannot write all.safetensors: File too large"));
  Outcome kept = tbc("checkpoint consolidate saved -o pipe");
  EXPECT_EQ(kept.code, 1);
  EXPECT_THAT(kept.err, HasSubstr("cannot create pipe: it is a device or a pipe [TBC0101]"));
  shellIn(folder, "echo > program/plan.json");
  EXPECT_THAT(tbc("verify program").err, HasSubstr("[TBC0217]"));
  // Trial files are removed.
  for (const char *where : {".", "saved", "events"})
    for (const auto &entry : fs::directory_iterator(fs::path(folder) / where))
      EXPECT_NE(entry.path().filename().string().rfind(".tbc-", 0), 0u) << entry.path();
}

} // namespace

//===- cli_test.cpp - The command line: exit codes, messages, files -------===//

#include "tests/tools/CliFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace fs = std::filesystem;
using tbc::test::Cli;
using tbc::test::Outcome;
using tbc::test::readAll;
using testing::HasSubstr;

namespace {

/// Returns the output of `tbc plan` without its last line, which names the next commands.
std::string withoutNext(const std::string &text) { return text.substr(0, text.find("next: ")); }

TEST_F(Cli, PlanVerifyCompileShow) {
  Outcome plan = planMlp("--mesh fsdp=4");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("fsdp=4"));
  Outcome verify = tbc("verify plan.json");
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
  EXPECT_THAT(verify.out, HasSubstr("verified"));
  Outcome compile = tbc("compile plan.json -o program");
  EXPECT_EQ(compile.code, 0) << compile.err;
  Outcome show = tbc("program show program");
  EXPECT_EQ(show.code, 0) << show.err;
  EXPECT_THAT(show.out, HasSubstr("all_gather"));
  Outcome explain = tbc("explain plan.json");
  EXPECT_EQ(explain.code, 0) << explain.err;
  EXPECT_EQ(explain.out, withoutNext(plan.out));
}

TEST_F(Cli, LayersAreNamedByTheirModules) {
  // The first two have names of torch's newer exporter, the others of its older one.
  for (auto [name, row] :
       {std::pair("tiny-gpt2", "  transformer.h.*                         2"),
        std::pair("llama-8l", "  model.layers.*                          7"),
        std::pair("masked-bert", "  bert.encoder.layer.*"), std::pair("resnet-8b", "  layer*")}) {
    Outcome plan = tbc("plan " + model(name) + " --gpus 8 -o plan.json");
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_THAT(plan.out, HasSubstr(row));
    EXPECT_LT(std::count(plan.out.begin(), plan.out.end(), '\n'), 62) << name;
    EXPECT_THAT(readAll(folder / "plan.json"), HasSubstr("\"first_op\": "));
  }
  Outcome pipeline = tbc("plan " + model("tiny-gpt2") + " --gpus 2 --mesh pp=2 --schedule 1f1b");
  EXPECT_THAT(pipeline.out, HasSubstr("stage 1 from transformer.h."));
}

TEST_F(Cli, ExplainHasDetails) {
  ASSERT_EQ(tbc("plan " + model("tiny-gpt2") +
                " --gpus 4 --mesh fsdp=2,tp=2 --batch 8 --seq 16 -o plan.json")
                .code,
            0);
  for (auto [flag, part, key] :
       {std::tuple("--memory", "largest tensors", "\"about\": \"memory\""),
        {"--comms", "what causes them", "\"exposed_data_seconds\": "},
        {"--kernels", "at the roof", "\"bound_by\": "},
        {"--layers", "transformer.h.1 ", "\"name\": \"transformer.h.1\""},
        {"--tensor 'transformer.h.*.ln_1.weight'", "flat over fsdp", "\"sharding\": "},
        {"--why dp=4", "where the difference is", "\"possible\": \"yes\""}}) {
    Outcome text = tbc(std::string("explain plan.json ") + flag);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr(part));
    Outcome json = tbc(std::string("explain plan.json --json ") + flag);
    EXPECT_EQ(json.code, 0) << json.err;
    EXPECT_THAT(json.out, HasSubstr(key));
  }
  Outcome misspelt = tbc("explain plan.json --tensor transformer.h.0.ln_1.wieght");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("did you mean transformer.h.0.ln_1.weight?"));
  Outcome unknown = tbc("explain plan.json --why recompue=full");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean recompute?"));
  EXPECT_EQ(tbc("explain plan.json --memory --comms").code, 2);
  Outcome other = tbc("explain plan.json --memory --model " + model("tiny-mlp"));
  EXPECT_EQ(other.code, 2) << other.err;
}

TEST_F(Cli, DifferencesHaveAnExitCode) {
  ASSERT_EQ(planMlp("--mesh fsdp=4").code, 0);
  fs::copy(folder / "plan.json", folder / "other.json");
  EXPECT_EQ(tbc("explain plan.json --diff other.json").code, 0);
  ASSERT_EQ(planMlp("--mesh dp=4").code, 0);
  Outcome diff = tbc("explain plan.json --diff other.json");
  EXPECT_EQ(diff.code, 10) << diff.err;
  EXPECT_THAT(diff.out, HasSubstr("mesh"));
  EXPECT_EQ(tbc("explain plan.json --diff absent.json").code, 2);
}

TEST_F(Cli, JobsAreCostedLineByLine) {
  std::string mlp = "{\"model\": \"" + model("tiny-mlp") + "\", \"gpus\": 4, \"batch\": 32, ";
  write("jobs.jsonl", mlp + "\"mesh\": \"fsdp=4\", \"precision\": \"f32\", \"id\": \"a\"}\n\n" +
                          mlp + "\"mesh\": \"fsdp=4\", \"precison\": \"f32\"}\n" + mlp +
                          "\"zero\": 5}\n" + "nonsense\n" + mlp +
                          "\"memory-limit\": \"1MiB\", \"mesh\": \"dp=4\"}\n");
  Outcome jobs = tbc("plan --job jobs.jsonl");
  EXPECT_EQ(jobs.code, 1) << jobs.err;
  std::vector<std::string> lines;
  std::istringstream stream(jobs.out);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u) << jobs.out;
  EXPECT_THAT(lines[0], HasSubstr("\"id\":\"a\""));
  EXPECT_THAT(lines[0], HasSubstr("\"fits\":true"));
  EXPECT_THAT(lines[1], HasSubstr("did you mean \\\"precision\\\"?"));
  EXPECT_THAT(lines[1], HasSubstr("\"line\":3"));
  EXPECT_THAT(lines[2], HasSubstr("\"code\":2"));
  EXPECT_THAT(lines[3], HasSubstr("no JSON object"));
  EXPECT_THAT(lines[4], HasSubstr("\"fits\":false")); // costed all the same
  // Equal to the output of `tbc plan`.
  ASSERT_EQ(planMlp("--mesh fsdp=4").code, 0);
  std::string plan = readAll(folder / "plan.json");
  size_t at = plan.find("\"step_seconds\": ", plan.find("\"stages\""));
  ASSERT_NE(at, std::string::npos);
  std::string seconds = plan.substr(at + 16, plan.find(',', at) - at - 16);
  EXPECT_THAT(lines[0], HasSubstr("\"step_seconds\":" + seconds.substr(0, 8)));
  EXPECT_EQ(tbc("plan --job absent.jsonl").code, 2);
  EXPECT_EQ(tbc("plan " + model("tiny-mlp") + " --job jobs.jsonl").code, 2);
}

TEST_F(Cli, FrozenParametersStayFrozenInThePlan) {
  ASSERT_EQ(planMlp("--mesh dp=4 --freeze '*.bias'").code, 0);
  Outcome verify = tbc("verify plan.json --residues-only");
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
}

TEST_F(Cli, DetachedValuesStayDetachedInThePlan) {
  ASSERT_EQ(planMlp("--mesh dp=4 --detach relu@node_linear_1").code, 0);
  EXPECT_THAT(readAll(folder / "plan.json"), HasSubstr("\"detach relu@node_linear_1\": 1"));
  // The layer below has no gradient, so no rank sends one.
  Outcome verify = tbc("verify plan.json --residues-only");
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
  Outcome wrong = planMlp("--mesh dp=4 --detach relu@node_linear_9");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("no node 'node_linear_9' reads the value 'relu'"));
}

TEST_F(Cli, TheNumbersOfAStepAreInThePlan) {
  Outcome plan = planMlp("--mesh dp=2,fsdp=2 --optimizer adam --weight-decay 0.1 --beta2 0.95 "
                         "--no-decay '*.bias' --clip-norm 0.5 --label-smoothing 0.1");
  ASSERT_EQ(plan.code, 0) << plan.err;
  std::string text = readAll(folder / "plan.json");
  for (const char *key : {"\"clip_norm\": 0.5", "\"beta2\": 0.95", "\"no-decay *.bias\": 1"})
    EXPECT_THAT(text, HasSubstr(key));
  Outcome verify = tbc("verify plan.json --residues-only");
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
}

TEST_F(Cli, F16IsTrainedWithALossScale) {
  auto planAt = [&](const std::string &flags) {
    Outcome plan = tbc("plan " + model("tiny-mlp") + " --gpus 4 --batch 32 --mesh pp=2,dp=2 " +
                       "--micro-batch 4 -o plan.json " + flags);
    EXPECT_EQ(plan.code, 0) << plan.err;
    EXPECT_EQ(tbc("explain plan.json").out, withoutNext(plan.out));
    return plan.out;
  };
  EXPECT_THAT(planAt("--precision bf16"), HasSubstr("  precision bf16\n"));
  EXPECT_THAT(planAt("--precision fp16 --loss-scale none"), HasSubstr("  precision f16\n"));
  EXPECT_THAT(planAt("--precision f16 --loss-scale 128"),
              HasSubstr("  precision f16, loss scale 128; a step that overflows is skipped\n"));
  EXPECT_THAT(planAt("--precision f32 --loss-scale dynamic"),
              HasSubstr("  precision f32, loss scale from 65536: x 2 after 2000 steps without "
                        "overflow, x 0.5 and the step skipped on one\n"));
  EXPECT_THAT(planAt("--precision fp16 --loss-scale-interval 500"),
              HasSubstr("  precision f16, loss scale from 65536: x 2 after 500 steps"));
  std::string text = readAll(folder / "plan.json");
  EXPECT_THAT(text, HasSubstr("\"precision\": \"f16\""));
  EXPECT_THAT(text, HasSubstr("\"loss_scale_interval\": 500"));
  Outcome verify = tbc("verify plan.json");
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
  EXPECT_THAT(verify.out, HasSubstr("planted in step 1, which is skipped"));
}

/// 556 parameters, and a kernel of a GPU has no more than 512 addresses.
TEST_F(Cli, TheNormOfManyGradientsIsASumOfSeveralKernels) {
  std::string make = "new gpt2 --layers 46 --hidden 16 --heads 2 --ffn 16 --vocab 32 -o m.onnx";
  ASSERT_EQ(tbc(make).code, 0);
  std::string plan = "plan m.onnx --gpus 1 --batch 1 --seq 8 --clip-norm 1 -o plan.json";
  ASSERT_EQ(tbc(plan).code, 0);
  Outcome made = tbc("compile plan.json -o program --no-kernels");
  ASSERT_EQ(made.code, 0) << made.err;
  std::string text = readAll(folder / "program/program.json"), sum = "\"op\":\"square_sum\"";
  int count = 0;
  for (size_t at = text.find(sum); at != std::string::npos; at = text.find(sum, at + 1))
    ++count;
  EXPECT_EQ(count, 3);
}

TEST_F(Cli, AnotherPrecisionIsProposedWhereItFits) {
  std::string job = "plan " + model("gpt2") + " --gpus 1 --seq 256 --batch 64 --micro-batch 64 " +
                    "--recompute none --precision f32 --memory-limit ";
  Outcome needsLess = tbc(job + "18GiB");
  EXPECT_EQ(needsLess.code, 4) << needsLess.err;
  EXPECT_THAT(needsLess.err, HasSubstr("  or use --precision bf16: then it fits in "));
  Outcome tooLittle = tbc(job + "2GiB");
  EXPECT_EQ(tooLittle.code, 4) << tooLittle.err;
  EXPECT_THAT(tooLittle.err, Not(HasSubstr("--precision bf16")));
}

TEST_F(Cli, WrongNumbersOfAStepAreErrors) {
  for (auto [flags, message] :
       {std::pair("--momentum 0.9", "--momentum is for sgd, sgd-momentum or muon, not for adamw"),
        std::pair("--clip-norm 0", "--clip-norm is out of range"),
        std::pair("--clip-norm 1 --clip-value 1", "not by both"),
        std::pair("--optimizer sgd --nesterov", "--nesterov needs --momentum"),
        std::pair("--loss-scale big", "--loss-scale wants dynamic, none or a positive number"),
        std::pair("--loss-scale -1", "--loss-scale wants"),
        std::pair("--loss-scale 8 --loss-scale-growth 2", "is for --loss-scale dynamic"),
        std::pair("--loss-scale-growth 2", "give --loss-scale dynamic"),
        std::pair("--loss-scale dynamic --loss-scale-backoff 2", "is out of range"),
        std::pair("--loss mse --label-smoothing 0.1", "--label-smoothing is for cross-entropy")}) {
    Outcome plan = planMlp(flags);
    EXPECT_EQ(plan.code, 2) << flags;
    EXPECT_THAT(plan.err, HasSubstr(message));
  }
  Outcome plan = planMlp("--no-decay 'nothing*'");
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err, HasSubstr("--no-decay: the model has no parameter 'nothing*'"));
}

TEST_F(Cli, BoundsHaveTheUpdateOfWholeMatrices) {
  // On one device both are one plan: kernels, and an update that is a fifth of the step.
  Outcome plan = tbc("plan " + model("tiny-gpt2") + " --gpus 1 --optimizer muon --json");
  ASSERT_EQ(plan.code, 0) << plan.err;
  auto number = [&](const std::string &key) {
    const size_t at = plan.out.rfind(key + "\":");
    return at == std::string::npos ? -1 : std::atof(plan.out.c_str() + at + key.size() + 2);
  };
  const double step = number("step_seconds"), bound = number("lower_bound_seconds");
  EXPECT_LE(bound, step);
  EXPECT_GT(bound, 0.9 * step);
}

TEST_F(Cli, NoPlanIsBelowTheBoundWithMatrixUpdates) {
  auto number = [](const std::string &text, const std::string &key) {
    const size_t at = text.rfind(key + "\":");
    return at == std::string::npos ? NAN : std::atof(text.c_str() + at + key.size() + 2);
  };
  for (const char *optimizer : {"muon", "adafactor"}) {
    const std::string job =
        "plan " + model("tiny-gpt2") + " --gpus 2 --batch 8 --json " + "--optimizer " + optimizer;
    const double bound = number(tbc(job).out, "lower_bound_seconds");
    for (const char *layout : {"dp=2 --zero 0", "dp=2 --zero 1", "fsdp=2", "tp=2", "pp=2"}) {
      const std::string plan = tbc(job + " --mesh " + layout).out;
      EXPECT_LE(bound, number(plan, "step_seconds")) << optimizer << " " << layout;
      EXPECT_LE(number(plan, "lower_bound_seconds"), number(plan, "step_seconds"));
    }
  }
}

TEST_F(Cli, PlansAreTheSameBytesTwice) {
  Outcome first = tbc("plan " + model("tiny-gpt2") + " --gpus 4 --batch 32 --json");
  Outcome second = tbc("plan " + model("tiny-gpt2") + " --gpus 4 --batch 32 --json --verbose");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.err.find("priced"), std::string::npos);
  EXPECT_THAT(second.err, HasSubstr(" candidates priced; "));
  EXPECT_THAT(second.err, HasSubstr(" a CPU second\n"));
  for (const char *key : {"\"step_seconds\"", "\"peak_bytes\"", "\"fits\"", "\"mesh\""})
    EXPECT_THAT(first.out, HasSubstr(key));
}

TEST_F(Cli, NothingColouredNothingPartialOnStdout) {
  Outcome plan = planMlp();
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(plan.err.find('\x1b'), std::string::npos);
}

TEST_F(Cli, UnknownFlagGetsASuggestion) {
  Outcome outcome = tbc("plan " + model("tiny-mlp") + " --gpu 4");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--gpus"));
}

TEST_F(Cli, UnknownSubcommandGetsASuggestion) {
  Outcome outcome = tbc("plam " + model("tiny-mlp"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean plan"));
}

TEST_F(Cli, UnknownClusterGetsASuggestion) {
  Outcome outcome = planMlp("--cluster h100-sxn");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("h100-sxm"));
}

TEST_F(Cli, TheDefaultClusterIsSaidToBeOne) {
  EXPECT_THAT(planMlp().out, HasSubstr("cluster h100-sxm, the default"));
  EXPECT_THAT(planMlp("--cluster h100-sxm").out, testing::Not(HasSubstr("the default")));
  EXPECT_EQ(planMlp("--cluster ''").code, 2);
}

TEST_F(Cli, ClustersAreListedAndPrinted) {
  Outcome list = tbc("cluster");
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char *text : {"\ngb200-nvl72            72 ", "\nh100-sxm ", "(default)"})
    EXPECT_THAT(list.out, HasSubstr(text));
  EXPECT_THAT(tbc("cluster --json").out, HasSubstr("\"name\": \"gaudi3\""));
  EXPECT_THAT(tbc("cluster mi300x --json").out, HasSubstr("\"group_bytes_per_second\": {"));
  Outcome unknown = tbc("cluster h100");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean h100-pcie or h100-sxm?"));
}

TEST_F(Cli, AnOwnClusterStartsFromAPreset) {
  ASSERT_EQ(tbc("cluster l40s -o my.toml").code, 0);
  std::string text = readAll(folder / "my.toml");
  EXPECT_THAT(text, HasSubstr("# NVIDIA L40S data sheet"));
  write("my.toml", text.replace(text.find("\"l40s\""), 6, "\"mine\""));
  EXPECT_EQ(tbc("cluster my.toml").out, readAll(folder / "my.toml"));
  EXPECT_THAT(planMlp("--cluster my.toml").out, HasSubstr(" x mine"));
  write("my.toml", "name = 3\n");
  Outcome broken = tbc("cluster my.toml");
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err, HasSubstr("my.toml:1: name must be a string"));
}

TEST_F(Cli, ClustersThatNameFilesStayInTheirFolder) {
  ASSERT_EQ(tbc("cluster l40s -o own.toml").code, 0);
  write("mixed.toml", "name = \"mixed\"\ndescription = \"two types\"\n[[nodes]]\ncluster = "
                      "\"own.toml\"\ncount = 1\n[[nodes]]\ncluster = \"l4\"\ncount = 1\n");
  fs::create_directory(folder / "other");
  Outcome copy = tbc("cluster mixed.toml -o other/mixed.toml");
  EXPECT_EQ(copy.code, 2);
  EXPECT_THAT(copy.err, HasSubstr("mixed.toml names nodes by the file own.toml"));
  EXPECT_FALSE(fs::exists(folder / "other/mixed.toml"));
  EXPECT_EQ(tbc("cluster mixed.toml -o other/mixed.json --json").code, 0);
  EXPECT_EQ(tbc("cluster mixed.toml -o again.toml").code, 0);
}

TEST_F(Cli, ImpossibleRequestsAreUsageErrors) {
  EXPECT_EQ(tbc("plan " + model("tiny-mlp") + " --gpus 0").code, 2);
  EXPECT_EQ(tbc("plan " + model("tiny-mlp")).code, 2);
  Outcome mesh = planMlp("--mesh dp=3");
  EXPECT_EQ(mesh.code, 2);
  EXPECT_THAT(mesh.err, HasSubstr("dp"));
  EXPECT_EQ(planMlp("--mesh dp=two").code, 2);
  EXPECT_EQ(planMlp("--mesh zz=4").code, 2);
  EXPECT_EQ(planMlp("--memory-limit lots").code, 2);
  EXPECT_EQ(planMlp("--dim batch").code, 2);
  EXPECT_THAT(tbc("plan " + model("tiny-mlp") + " --gpus 2147483648").err,
              HasSubstr("--gpus 2147483648: a plan is for 1 to 1,048,576 devices"));
  EXPECT_FALSE(fs::exists(folder / "plan.json"));
}

TEST_F(Cli, ContradictingPinsAreBothNamed) {
  Outcome outcome = planMlp("--mesh dp=4 --strategy tp");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("tp"));
  EXPECT_THAT(outcome.err, HasSubstr("mesh"));
}

TEST_F(Cli, OpsArePinnedByTheirModules) {
  std::string plan = "plan " + model("tiny-gpt2") + " --gpus 4 --batch 8 ";
  Outcome pinned =
      tbc(plan + "--pin '*.mlp.*=tp' --pin '*.attn.*=whole' --forbid pp -o pinned.json");
  ASSERT_EQ(pinned.code, 0) << pinned.err;
  EXPECT_NE(pinned.out.find("pin         *.mlp.*=tp: "), std::string::npos) << pinned.out;
  EXPECT_NE(pinned.out.find("forbid      pp: pinned"), std::string::npos) << pinned.out;
  Outcome why = tbc("explain pinned.json --why zero=1");
  EXPECT_NE(why.out.find("--pin *.mlp.*=tp"), std::string::npos) << why.out << why.err;
  Outcome unknown = tbc(plan + "--pin '*.mpl.*=tp'");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean \"*.mlp.*\"?"), std::string::npos) << unknown.err;
  Outcome both = tbc(plan + "--pin '*.mlp.*=tp' --mesh dp=4");
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--mesh dp=4"), std::string::npos) << both.err;

  write("pins.jsonl", "{\"model\": \"" + model("tiny-gpt2") +
                          "\", \"gpus\": 4, \"batch\": 8, \"pin\": [\"tp=2\", \"*.mlp.*=tp\"], "
                          "\"forbid\": \"zero\"}\n");
  Outcome job = tbc("plan --job pins.jsonl");
  ASSERT_EQ(job.code, 0) << job.out;
  EXPECT_THAT(job.out, testing::AllOf(HasSubstr("\"tp\":2"), HasSubstr("\"zero\":0")));
}

TEST_F(Cli, NothingFitsSaysWhatIsShort) {
  Outcome outcome = planMlp("--memory-limit 1KiB");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_FALSE(fs::exists(folder / "plan.json"));
}

TEST_F(Cli, ModelsThatAreNoneAreRejected) {
  write("empty.onnx", "");
  write("text.onnx", "this is not a model\n");
  std::string whole = readAll(model("tiny-mlp"));
  write("half.onnx", whole.substr(0, whole.size() / 2));
  for (const char *name : {"empty.onnx", "text.onnx", "half.onnx"}) {
    Outcome outcome = tbc(std::string("plan ") + name + " --gpus 4 -o plan.json");
    EXPECT_EQ(outcome.code, 3) << name << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(name));
    EXPECT_EQ(tbc(std::string("check ") + name).code, 3) << name;
  }
  EXPECT_EQ(tbc("plan absent.onnx --gpus 4").code, 2); // a wrong path, not a wrong model
  EXPECT_FALSE(fs::exists(folder / "plan.json"));
}

TEST_F(Cli, ASequenceLongerThanThePositionTableIsToldHowLongItMayBe) {
  Outcome outcome = tbc("check " + model("gpt2") + " --seq 1025");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("node 'node_embedding_1' (Gather): index 1024 is out of range "
                                     "for a dim of size 1024; if it holds positions, --seq can be "
                                     "at most 1024"));
  EXPECT_EQ(tbc("check " + model("gpt2") + " --seq 1024").code, 0);
}

TEST_F(Cli, KernelsAreCompiledUnlessTheyAreNotWanted) {
  ASSERT_EQ(planMlp().code, 0);
  Outcome compile = tbc("compile plan.json --cpu x86-64-v3 -o program");
  EXPECT_EQ(compile.code, 0) << compile.err;
  EXPECT_THAT(compile.out, HasSubstr("regions with "));
  EXPECT_THAT(compile.out, HasSubstr("for x86-64-v3"));
  EXPECT_TRUE(fs::exists(folder / "program/kernels.so"));
  // An instruction of a region. It has a number if the block has concurrent streams.
  EXPECT_THAT(tbc("program show program").out, testing::ContainsRegex("\n    [|] ([0-9]+: )?%"));
  std::string library = readAll(folder / "program/kernels.so");
  EXPECT_EQ(tbc("compile plan.json --cpu x86-64-v3 -o again").code, 0);
  EXPECT_TRUE(library == readAll(folder / "again/kernels.so")) << "not the same bytes";

  EXPECT_EQ(tbc("compile plan.json --no-kernels -o program").code, 0);
  EXPECT_FALSE(fs::exists(folder / "program/kernels.so")) << "that of another program";
  EXPECT_EQ(tbc("program show program").out.find("    | %"), std::string::npos);

  Outcome unknown = tbc("compile plan.json --cpu x86-64-v9 -o other");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("x86-64-v9"));
  Outcome both = tbc("compile plan.json --cpu x86-64-v3 --no-kernels -o other");
  EXPECT_EQ(both.code, 2) << both.err;
}

TEST_F(Cli, WithoutALinkerKernelsAreAnErrorThatSaysWhatToDo) {
  ASSERT_EQ(planMlp().code, 0);
  ASSERT_EQ(setenv("PATH", "/nowhere", 1), 0);
  // The shell that starts tbc is named by its path.
  Outcome compile = tbc("compile plan.json -o program");
  EXPECT_EQ(compile.code, 1);
  EXPECT_THAT(compile.err, HasSubstr("ld.lld"));
  EXPECT_THAT(compile.err, HasSubstr("--no-kernels"));
  EXPECT_FALSE(fs::exists(folder / "program/program.json"));
  EXPECT_EQ(tbc("compile plan.json --no-kernels -o program").code, 0);
}

TEST_F(Cli, PlansThatAreNoneAreRefused) {
  ASSERT_EQ(planMlp().code, 0);
  std::string plan = readAll(folder / "plan.json");
  write("half.json", plan.substr(0, plan.size() / 2));
  write("empty.json", "");
  std::string later = plan;
  size_t at = later.find("\"version\": 6");
  ASSERT_NE(at, std::string::npos);
  later.replace(at, 12, "\"version\": 9");
  write("later.json", later);
  std::string strange = plan;
  strange.insert(strange.find('{') + 1, "\"colour\": 1,");
  write("strange.json", strange);
  for (const char *name : {"half.json", "empty.json", "later.json", "strange.json", "absent.json"})
    for (const char *command : {"verify", "explain"}) {
      Outcome outcome = tbc(std::string(command) + " " + name);
      EXPECT_EQ(outcome.code, 2) << command << " " << name << ": " << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(name));
    }
  Outcome other = tbc("verify plan.json --model " + model("tiny-gpt2"));
  EXPECT_EQ(other.code, 2) << other.err;
}

TEST_F(Cli, EditedPredictionsAreRefused) {
  ASSERT_EQ(planMlp().code, 0);
  std::string plan = readAll(folder / "plan.json");
  // The edit of this value cannot be recognised from the file alone.
  const std::string key = "\"mfu\": ";
  size_t at = plan.find(key);
  ASSERT_NE(at, std::string::npos);
  write("edited.json", plan.substr(0, at) + key + "0.99" + plan.substr(plan.find(',', at)));
  for (const char *command : {"explain edited.json", "explain edited.json --memory",
                              "verify edited.json", "compile edited.json -o program"}) {
    Outcome outcome = tbc(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(
        outcome.err,
        testing::AllOf(HasSubstr("key \"prediction.mfu\" is 0.99, but the plan's decisions give "),
                       HasSubstr("--derive FILE")));
  }
  EXPECT_FALSE(fs::exists(folder / "program"));
  EXPECT_EQ(tbc("explain edited.json --derive derived.json").code, 0);
  EXPECT_EQ(readAll(folder / "derived.json"), plan);
  // Without the model, the plan is only compared with itself.
  fs::create_directory(folder / "elsewhere");
  write("elsewhere/edited.json", readAll(folder / "edited.json"));
  Outcome alone = tbc("explain elsewhere/edited.json");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("were not derived again"));
}

TEST_F(Cli, APlanNamesItsModel) {
  ASSERT_EQ(planMlp().code, 0);
  std::string plan = readAll(folder / "plan.json");
  const std::string key = "\"path\": ";
  const size_t at = plan.find(key);
  ASSERT_NE(at, std::string::npos);
  write("nameless.json", plan.substr(0, at) + key + "\"\"" + plan.substr(plan.find(',', at)));
  Outcome outcome = tbc("verify nameless.json");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("nameless.json: key \"model.path\" is empty; it names"));
}

TEST_F(Cli, AnEditedLimitOfMemoryIsNotDrawn) {
  ASSERT_EQ(planMlp().code, 0);
  std::string plan = readAll(folder / "plan.json");
  const std::string key = "\"memory_limit_bytes\": ";
  const size_t at = plan.find(key);
  ASSERT_NE(at, std::string::npos);
  write("edited.json", plan.substr(0, at) + key + "1048576" + plan.substr(plan.find(',', at)));
  for (const char *command : {"report edited.json -o page.html", "timeline edited.json -o t.json",
                              "explain edited.json --decisions", "explain edited.json --rank 0"}) {
    Outcome outcome = tbc(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("memory_limit_bytes (1048576)")) << command;
  }
}

TEST_F(Cli, DamagedProgramsAreRefused) {
  ASSERT_EQ(planMlp("--mesh dp=4").code, 0);
  ASSERT_EQ(tbc("compile plan.json -o program").code, 0);
  std::string text = readAll(folder / "program" / "program.json");
  for (size_t at : {text.size() / 7, text.size() / 3, text.size() - 20}) {
    std::string damaged = text;
    damaged[at] = damaged[at] == '1' ? '2' : '1';
    write("damaged.json", damaged);
    Outcome outcome = tbc("program show damaged.json");
    EXPECT_EQ(outcome.code, 2) << "byte " << at << ": " << outcome.err;
  }
}

TEST_F(Cli, AFullDiskLeavesNoFile) {
  Outcome outcome = tbc("plan " + model("tiny-mlp") + " --gpus 4 -o /dev/full/plan.json");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("/dev/full"));
}

} // namespace

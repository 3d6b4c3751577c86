//===- verify_program_test.cpp - tbc verify of Programs, run --self-check -===//

#include "codegen/cpu/CompileKernels.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/Sha256.h"
#include "tests/tools/PlanSupport.h"
#include "tests/tools/Reseal.h"
#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>

namespace tbc::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class VerifyProgram : public Run {
protected:
  Outcome tbc(const std::string &arguments) { return shell(TBC_PROGRAM " " + arguments); }

  /// Copies a compiled Program and builds its kernels.so of changed code: replaces `from` by `to`
  /// in the first kernel with `from`. Seals the copy again.
  void plant(const std::string &program, const std::string &from, const std::string &to) {
    std::string copy = folder + "/planted";
    fs::copy(program, copy);
    std::string model = std::string(TBC_SOURCE_DIR) + "/models/tiny-gpt2.onnx";
    auto loaded = driver::loadPlan(copy + "/plan.json", readAll(copy + "/plan.json"), model);
    ASSERT_TRUE(loaded) << loaded.error().message;
    auto target = cpu::findCpuTarget("native");
    ASSERT_TRUE(target);
    auto compiled = driver::compilePlan(*loaded->step, loaded->plan, &*target);
    ASSERT_TRUE(compiled) << compiled.error().message;
    bool isPlanted = false;
    for (region::KernelSource &source : compiled->kernels)
      if (size_t at = source.text.find(from); !isPlanted && at != std::string::npos) {
        source.text.replace(at, from.size(), to);
        isPlanted = true;
      }
    ASSERT_TRUE(isPlanted) << "no kernel has " << from;
    auto made =
        cpu::compileKernels(compiled->kernels, *target, sha256Hex(readAll(copy + "/program.json")),
                            copy + "/" + program::kernelsFile);
    ASSERT_TRUE(made) << made.error().message;
    resealFolder(copy);
  }
};

TEST_F(VerifyProgram, AFolderIsVerifiedAsItIs) {
  Outcome outcome = tbc("verify '" + mlpOnTwo() + "'");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("seal      4 files and 1 that they were made from are as"),
                    HasSubstr("residues  "), HasSubstr("run       "), HasSubstr(", as is"),
                    HasSubstr(", other sizes"), HasSubstr("verified: ")));
  Outcome json = tbc("verify '" + mlpOnTwo() + "' --json --budget 1");
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"passed\": true"), HasSubstr("\"kind\": \"compiled\""),
                              HasSubstr("\"sizes\": \"as is\"")));
}

TEST_F(VerifyProgram, APlanIsCompiledForIt) {
  Outcome outcome = tbc("verify '" + mlpOnTwo() +
                        "/plan.json' --kernels --model " TBC_SOURCE_DIR "/models/tiny-mlp.onnx");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(Not(HasSubstr("seal ")), HasSubstr("  compiled  x"),
                                 HasSubstr("  native    x")));
}

/// The proof in residues cannot see this: the Program is right, its machine code is not.
TEST_F(VerifyProgram, AWrongCompiledKernelIsFound) {
  std::string gpt = program("tiny-gpt2", "--gpus 2 --mesh dp=2 --seq 16");
  ASSERT_NO_FATAL_FAILURE(plant(gpt, "arith.addf", "arith.subf"));
  Outcome verify = tbc("verify planted --budget 1");
  EXPECT_EQ(verify.code, 5) << verify.out << verify.err;
  EXPECT_THAT(verify.out, AllOf(HasSubstr("differs: "), HasSubstr("the compiled kernel ("),
                                HasSubstr("the reference kernel gives "), HasSubstr("FAILED: ")));
  // The run itself notices only with --self-check.
  EXPECT_EQ(run("planted", "--steps 1").code, 0);
  Outcome checked = run("planted", "--steps 1 --self-check");
  EXPECT_EQ(checked.code, 5) << checked.err;
  EXPECT_THAT(checked.err, AllOf(HasSubstr("the compiled kernel ("), HasSubstr("stage 0"),
                                 HasSubstr("and the reference kernels differ: element ")));
}

TEST_F(VerifyProgram, AProgramThatIsNotThatOfItsPlanIsSeen) {
  std::string copy = folder + "/copy";
  fs::copy(mlpOnTwo(), copy);
  fs::copy(mlp() + "/plan.json", copy + "/plan.json", fs::copy_options::overwrite_existing);
  resealFolder(copy);
  Outcome outcome = tbc("verify copy");
  EXPECT_EQ(outcome.code, 5) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("program.json is not what this tbc makes of its plan.json"));
}

TEST_F(VerifyProgram, AChangedModelIsNamed) {
  std::string model = folder + "/model.onnx";
  fs::copy(std::string(TBC_SOURCE_DIR) + "/models/tiny-mlp.onnx", model);
  ASSERT_EQ(tbc("plan model.onnx --gpus 1 --batch 8 --precision f32 -o plan.json").code, 0);
  ASSERT_EQ(tbc("compile plan.json -o program").code, 0);
  std::string content = readAll(model);
  content[content.size() / 2] = char(content[content.size() / 2] ^ 4);
  std::ofstream(model, std::ios::binary) << content;
  Outcome outcome = tbc("verify program");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("model.onnx has changed since the Program was compiled"),
                                 HasSubstr("SHA-256")));
}

TEST_F(VerifyProgram, SelfCheckSaysWhatItCompared) {
  Outcome outcome = run(mlp(), "--steps 2 --self-check");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("agree with the reference kernels"));
  Outcome other = run(mlp(), "--steps 1 --self-check --kernels reference");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("--self-check compares"));
}

} // namespace
} // namespace tbc::test

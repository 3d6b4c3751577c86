//===- cli_test.cpp - The corpus through the tbc program ------------------===//

#include "tests/hostile/Corpus.h"
#include "tests/hostile/Import.h"
#include "tests/hostile/Process.h"
#include "tests/hostile/RealModels.h"

#include "runtime/abi/Status.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <iostream>
#include <limits>
#include <tuple>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;
using ::testing::Not;

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

/// y = relu(x w + c), with the given elements somewhere in w and c.
ModelBuilder modelWith(float weight, float constant) {
  ModelBuilder b(17);
  std::vector<float> weights(16, 0.25F);
  weights[6] = weight;
  b.input("x", {"batch", "4"});
  b.floats("w", {4, 4}, weights);
  onnx::NodeProto &node = b.node("Constant", {}, {"c"}, "offsets");
  onnx::AttributeProto &elements = *node.add_attribute();
  elements.set_name("value_floats");
  elements.set_type(onnx::AttributeProto::FLOATS);
  for (float element : {0.0F, constant, 0.0F, 0.0F})
    elements.add_floats(element);
  b.node("MatMul", {"x", "w"}, {"h"}, "first");
  b.node("Add", {"h", "c"}, {"s"}, "add");
  b.node("Relu", {"s"}, {"y"}, "relu");
  b.output("y");
  return b;
}

/// The tensor that begins with NaN or infinity is named before a run, by a proof and by a run.
TEST(HostileProgram, NumbersThatAreNotFiniteAreNamed) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinity = std::numeric_limits<float>::infinity();
  TemporaryFolder folder;
  auto tbc = [&](std::vector<std::string> words) {
    words.insert(words.begin(), TBC_PROGRAM);
    return runProcess(words, folder.path(""));
  };
  for (auto [weight, constant, name] :
       {std::tuple(nan, 0.0F, "initializer 'w' is NaN at [1, 2]"),
        std::tuple(infinity, 0.0F, "initializer 'w' is infinite at [1, 2]"),
        std::tuple(0.0F, nan, "the constant that node 'add' reads or makes is NaN at [1]"),
        std::tuple(0.0F, infinity, "the constant that node 'add' reads or makes is infinite")}) {
    SCOPED_TRACE(name);
    folder.write("model.onnx", modelWith(weight, constant).bytes());
    ProcessOutcome check = tbc({"check", "model.onnx"});
    EXPECT_EQ(check.code, 0) << check.err;
    EXPECT_THAT(check.out, HasSubstr(name));
    ASSERT_EQ(tbc({"plan", "model.onnx", "--gpus", "2", "--mesh", "dp=2", "--batch", "8",
                   "--precision", "f32", "-o", "plan.json"})
                  .code,
              0);
    ProcessOutcome verify = tbc({"verify", "plan.json"});
    EXPECT_EQ(verify.code, int(ErrorCode::ModelRejected)) << verify.err;
    EXPECT_THAT(verify.err, HasSubstr(name));
    EXPECT_THAT(verify.err, HasSubstr("[TBC0300]"));
    ASSERT_EQ(tbc({"compile", "plan.json", "--no-kernels", "-o", "program"}).code, 0);
    ProcessOutcome run = tbc({"run", "program", "--kernels", "reference"});
    EXPECT_EQ(run.code, int(ErrorCode::NotFinite)) << run.err;
    const bool isWeight = std::string(name).find("initializer") == 0;
    EXPECT_THAT(run.err, HasSubstr(isWeight ? "initializer 'w' was not finite before the first step"
                                            : "the constant that node 'add' reads or makes is not "
                                              "finite"));
  }
}

/// where(isnan(x), nan, x * c), as the exporter writes torch.xlogy: NaN replaces NaN alone.
TEST(HostileProgram, ANanInPlaceOfANanIsNoMistake) {
  TemporaryFolder folder;
  ModelBuilder b = modelWith(0.5F, 1.0F);
  b.proto.mutable_graph()->clear_output();
  b.floats("nan", {}, {std::numeric_limits<float>::quiet_NaN()});
  b.node("IsNaN", {"y"}, {"where"});
  b.node("Where", {"where", "nan", "y"}, {"z"}, "guard");
  b.output("z");
  folder.write("model.onnx", b.bytes());
  ProcessOutcome check = runProcess({TBC_PROGRAM, "check", "model.onnx"}, folder.path(""));
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_THAT(check.out, Not(HasSubstr("NaN")));
}

} // namespace

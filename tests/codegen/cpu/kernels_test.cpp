//===- kernels_test.cpp - Compiled kernels against the reference kernels ----===//

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "tests/codegen/cpu/KernelCheck.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;
using kernels::Arith;
using kernels::Tensor;

namespace {

region::EmitFn emitterFor(const cpu::CpuTarget &target) {
  return [lanes = target.lanes](func::FuncOp function,
                                const region::Domain &domain) -> FailureOr<region::Kernel> {
    return cpu::emitKernel(function, domain, lanes);
  };
}

std::set<std::string> checkAll(const std::vector<OpCase> &cases, const std::string &cpuName) {
  auto target = cpu::findCpuTarget(cpuName);
  EXPECT_TRUE(target);
  return tbc::checkAll(cases, *target, emitterFor(*target), target->lanes);
}

TEST(CompiledKernels, EveryOpOfTheTables) {
  std::set<std::string> ops = checkAll(allCases(), "native");
  for (const char *op : {"abs",         "add",           "atan",
                         "broadcast",   "ceil",          "cos",
                         "div",         "dropout_train", "erf",
                         "exp",         "floor",         "gelu",
                         "gelu_grad",   "layer_norm",    "layer_norm_grad",
                         "log",         "maximum",       "minimum",
                         "mul",         "neg",           "norm_scale_grad",
                         "pow",         "reciprocal",    "reduce_max",
                         "reduce_sum",  "relu",          "reshape",
                         "rms_norm",    "rms_norm_grad", "rms_scale_grad",
                         "round",       "rsqrt",         "select",
                         "sigmoid",     "silu",          "silu_grad",
                         "sin",         "softmax",       "softmax_grad",
                         "sqrt",        "sub",           "swiglu",
                         "swiglu_grad", "tanh"})
    EXPECT_EQ(ops.count(op), 1u) << op << " has no compiled kernel";
}

TEST(CompiledKernels, OpsWithoutAGradient) {
  std::vector<OpCase> cases = otherCases();
  std::set<std::string> ops = checkAll(cases, "native");
  for (const OpCase &opCase : cases)
    EXPECT_EQ(ops.count(opCase.mnemonic), 1u) << opCase.mnemonic << " has no compiled kernel";
}

TEST(CompiledKernels, InBFloat16) {
  std::vector<OpCase> cases;
  for (const OpCase &opCase : allCases())
    cases.push_back(withType(opCase, "xf32", "xbf16"));
  std::set<std::string> ops = checkAll(cases, "native");
  EXPECT_GE(ops.size(), 25u); // statistics stay f32, so some ops have no such form
}

/// Older CPUs than this one compute the same with narrower vectors.
TEST(CompiledKernels, ForOlderCpus) {
  std::vector<OpCase> cases = {{"gelu", "3x37xf32", "3x37xf32", "approximate = \"none\""},
                               {"softmax", "3x37xbf16", "3x37xbf16", "dim = 1 : i64"},
                               {"reduce_sum", "5x37xf32", "37xf32", "dims = array<i64: 0>"}};
  for (const char *name : {"x86-64-v2", "x86-64-v3"})
    EXPECT_EQ(checkAll(cases, name).size(), 3u);
}

TEST(CompiledKernels, NanIsNotLost) {
  EXPECT_EQ(checkAll(nanCases(), "native").size(), 22u);
  EXPECT_EQ(checkAll(nanCases(), "x86-64-v2").size(), 22u);
}

TEST(CompiledKernels, ShapesOfAllKinds) { EXPECT_EQ(checkAll(shapeCases(), "native").size(), 9u); }

/// Edge values of functions and roundings.
TEST(CompiledKernels, SpecialNumbers) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  float infinity = std::numeric_limits<float>::infinity();
  std::vector<double> numbers = {0.0,   -0.0,   infinity,   -infinity,  std::nan(""),
                                 1e-40, 3.3e38, -3e38,      88.8,       -104.0,
                                 1.0,   0.5,    1.00390625, 1.01171875, -1.00390625};
  std::string type = std::to_string(numbers.size()) + "xf32";
  std::vector<OpCase> cases;
  for (const char *op : {"exp", "tanh", "erf", "sigmoid", "relu", "abs", "sqrt", "reciprocal",
                         "floor", "round", "log", "atan"})
    cases.push_back({op, type, type});
  cases.push_back({"cast", type, withType({"", type, ""}, "xf32", "xbf16").operands});
  for (size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(cases[c].mnemonic);
    auto compiled = compileCase(cases[c], emitterFor(*target), 0);
    ASSERT_TRUE(compiled);
    KernelLibrary library({sourceOf(*compiled)}, *target);
    ASSERT_TRUE(library.isOpen());
    func::FuncOp function = compiled->module->function("f");
    Tensor x = Tensor::fromDoubles(*toKernelType(function.getArgument(0).getType()), Arith::Native,
                                   numbers);
    auto expected = evaluateFunction(function, {x}, Arith::Native);
    ASSERT_TRUE(succeeded(expected));
    KernelRun run;
    run.extent = compiled->kernel.extent;
    std::vector<double> made =
        runKernel({library.find(compiled->symbol)}, run, {x}, {(*expected)[0].type()})[0]
            .toDoubles();
    std::vector<double> wanted = (*expected)[0].toDoubles();
    for (size_t i = 0; i < numbers.size(); ++i) {
      // For subnormal numbers kernels take the logarithm of the smallest normal number.
      if (cases[c].mnemonic == "log" && numbers[i] == 1e-40)
        continue;
      if (std::isnan(wanted[i]))
        EXPECT_TRUE(std::isnan(made[i])) << numbers[i];
      else if (std::isinf(wanted[i]))
        EXPECT_EQ(made[i], wanted[i]) << numbers[i];
      else // subnormal results may be 0
        EXPECT_NEAR(made[i], wanted[i], 4e-7 * std::abs(wanted[i]) + 0x1p-126) << numbers[i];
    }
  }
}

/// A kernel must not silently compute cases that the reference refuses.
TEST(CompiledKernels, NoneWhereTheReferenceChecksNumbers) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  for (const OpCase &opCase :
       {OpCase{"cast", "5xf32", "5xi64"}, OpCase{"div", "5xi64, 5xi64", "5xi64"},
        OpCase{"pow", "5xi64, 5xi64", "5xi64"}, OpCase{"class_max", "2x4xf32, 4xi64", "2xf32"}})
    EXPECT_FALSE(compileCase(opCase, emitterFor(*target), 0)) << testing::PrintToString(opCase);
}

TEST(CompiledKernels, LibrarySaysWhatItIs) {
  auto target = cpu::findCpuTarget("x86-64-v3");
  ASSERT_TRUE(target);
  KernelLibrary library({}, *target);
  ASSERT_TRUE(library.isOpen());
  EXPECT_EQ(library.text(program::kernelsVersionSymbol), program::kernelsVersion);
  EXPECT_EQ(library.text(program::kernelsProgramSymbol), KernelLibrary::programHash);
  EXPECT_THAT(library.text(program::kernelsCpuFeaturesSymbol), testing::HasSubstr("avx2"));
}

TEST(CompiledKernels, UnknownCpuIsRefused) {
  auto target = cpu::findCpuTarget("x86-64-v9");
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, ErrorCode::Usage);
  EXPECT_THAT(target.error().message, testing::HasSubstr("native, x86-64-v2"));
}

} // namespace

//===- regions_test.cpp - Kernels of several ops ----------------------------===//
//
// One kernel for several ops: results that overwrite operands needed by other results, and extents
// with vanishing loops or vector tails.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/EmitKernel.h"
#include "codegen/cuda/EmitCudaKernel.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cpu/RandomRegion.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;

namespace {

region::EmitFn cpuEmitter(const cpu::CpuTarget &target) {
  return [lanes = target.lanes](func::FuncOp function,
                                const region::Domain &domain) -> FailureOr<region::Kernel> {
    return cpu::emitKernel(function, domain, lanes);
  };
}

FailureOr<region::Kernel> emitThreads(func::FuncOp function, const region::Domain &domain) {
  return cuda::emitCudaKernel(function, domain, cuda::Form::Host);
}

/// The gradient of a batch norm over a split batch, with one sample per rank and one element per
/// channel. The count is stored first and may overwrite %sum, but the second result needs %sum.
const char *const countOverSum = R"(
func.func @f(%sum: tensor<8xf32>, %factor: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %product = tbc.mul %sum, %factor : tensor<8xf32>
  %number = tbc.factor_size {count = 1 : i64, samples = 4 : i64} : () -> tensor<f32>
  %count = tbc.broadcast %number {dims = array<i64>} : (tensor<f32>) -> tensor<8xf32>
  %mean = tbc.div %product, %count : tensor<8xf32>
  return %count, %mean : tensor<8xf32>, tensor<8xf32>
})";

/// The same within a pass over a reduced loop: %twice overwrites %x and is stored before %y is
/// computed.
const char *const withinAPass = R"(
func.func @f(%x: tensor<2x5x3x3xf32>, %z: tensor<2x5x3x3xf32>)
    -> (tensor<2x5x3x3xf32>, tensor<5xf32>, tensor<2x5x3x3xf32>) {
  %n = tbc.neg %x : tensor<2x5x3x3xf32>
  %twice = tbc.add %z, %z : tensor<2x5x3x3xf32>
  %sum = tbc.reduce_sum %z {dims = array<i64: 0, 2, 3>} : (tensor<2x5x3x3xf32>) -> tensor<5xf32>
  %y = tbc.add %n, %z : tensor<2x5x3x3xf32>
  return %twice, %sum, %y : tensor<2x5x3x3xf32>, tensor<5xf32>, tensor<2x5x3x3xf32>
})";

TEST(Regions, ResultsOverOperandsThatOthersNeed) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  int number = 0;
  for (auto [emit, lanes] :
       {std::pair(cpuEmitter(*target), target->lanes), std::pair(region::EmitFn(emitThreads), 1)}) {
    std::vector<Compiled> compiled;
    for (const char *text : {countOverSum, withinAPass}) {
      auto one = compileFunction("region", text, emit, number++);
      ASSERT_TRUE(one);
      // Otherwise the case would test nothing.
      EXPECT_TRUE(one->kernel.mayOverwrite[0][0]);
      compiled.push_back(std::move(*one));
    }
    checkCompiled(compiled, *target, lanes);
  }
}

TEST(Regions, ColumnsAreReadAndWrittenInPlace) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  for (auto [emit, lanes] :
       {std::pair(cpuEmitter(*target), target->lanes), std::pair(region::EmitFn(emitThreads), 1)}) {
    std::vector<Compiled> compiled;
    for (const std::string &text : columnFunctions()) {
      auto one = compileFunction(text, text, emit, int(compiled.size()));
      ASSERT_TRUE(one) << text;
      // Other columns of x are read at other indices.
      for (const std::vector<bool> &row : one->kernel.mayOverwrite)
        EXPECT_FALSE(row[0]) << text;
      compiled.push_back(std::move(*one));
    }
    checkCompiled(compiled, *target, lanes);
  }
}

/// Integers that do not fit the type between two ops of one kernel: 300 and -1 as i8 and ui8, and
/// products beyond 32 bits.
const char *const narrowIntegers = R"(
func.func @f(%x: tensor<5xi64>, %y: tensor<5xi32>) -> (tensor<5xf32>, tensor<5xi64>) {
  %byte = tbc.cast %x : (tensor<5xi64>) -> tensor<5xui8>
  %float = tbc.cast %byte : (tensor<5xui8>) -> tensor<5xf32>
  %signed = tbc.cast %x : (tensor<5xi64>) -> tensor<5xi8>
  %minus = tbc.neg %signed : tensor<5xi8>
  %wide = tbc.cast %minus : (tensor<5xi8>) -> tensor<5xi64>
  %square = tbc.mul %y, %y : tensor<5xi32>
  %product = tbc.cast %square : (tensor<5xi32>) -> tensor<5xi64>
  %both = tbc.add %wide, %product : tensor<5xi64>
  return %float, %both : tensor<5xf32>, tensor<5xi64>
})";

TEST(Regions, IntegersWrapBetweenOps) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  for (auto [emit, lanes] :
       {std::pair(cpuEmitter(*target), target->lanes), std::pair(region::EmitFn(emitThreads), 1)}) {
    auto one = compileFunction("region", narrowIntegers, emit, 0);
    ASSERT_TRUE(one);
    one->opCase.integers = {{0, {300, -1, -128, 128, 7}}, {1, {46341, -70000, 65536, 3, 100000}}};
    std::vector<Compiled> compiled;
    compiled.push_back(std::move(*one));
    checkCompiled(compiled, *target, lanes);
  }
}

TEST(Regions, AtRandom) {
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  constexpr int numRegions = 240;
  for (auto [emit, lanes] :
       {std::pair(cpuEmitter(*target), target->lanes), std::pair(region::EmitFn(emitThreads), 1)}) {
    std::mt19937 random(16);
    std::vector<Compiled> compiled;
    int numInPlace = 0;
    for (int i = 0; i < numRegions; ++i) {
      std::string text = randomRegion(random);
      auto one = compileFunction("region " + std::to_string(i) + "\n" + text, text, emit, i);
      if (!one) // not a single loop nest
        continue;
      for (const std::vector<bool> &row : one->kernel.mayOverwrite)
        numInPlace += int(llvm::count(row, true));
      compiled.push_back(std::move(*one));
    }
    EXPECT_GE(int(compiled.size()), numRegions / 5);
    EXPECT_GE(numInPlace, numRegions / 5);
    checkCompiled(compiled, *target, lanes);
  }
}

} // namespace

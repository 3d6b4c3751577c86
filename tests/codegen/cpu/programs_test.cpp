//===- programs_test.cpp - Every region of compiled models ------------------===//
//
// Each region of a Program does, compiled, what its instructions do by the reference kernels.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Region.h"
#include "runtime/kernels/Kernel.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/Compile.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace tbc;
using kernels::Arith;
using kernels::Tensor;
using program::ValueId;

namespace {

/// Values of a region by the reference kernels.
using Values = std::map<ValueId, Tensor>;

/// Positive floats; integers that are right as labels below 64, numbers of classes, indices and
/// counts.
Tensor anyTensor(const kernels::TensorType &type, Arith arith, std::mt19937 &random) {
  size_t count = size_t(kernels::numElements(type.shape));
  if (kernels::isFloat(type.dtype)) {
    std::uniform_real_distribution<double> magnitude(0.2, 1.5);
    std::vector<double> values(count);
    for (double &value : values)
      value =
          Tensor::fromDoubles({type.dtype, {}}, Arith::Native, {magnitude(random)}).toDoubles()[0];
    return Tensor::fromDoubles(type, arith, values);
  }
  std::vector<int64_t> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = type.dtype == kernels::DType::Bool ? int64_t(random() % 2)
                : type.shape.empty()               ? 63
                : type.shape.size() == 1           ? int64_t(i)
                                                   : int64_t(random() % 64);
  return Tensor::fromInts(type, values);
}

class RegionChecker {
public:
  RegionChecker(const program::Stage &stage, const program::Block &block,
                const KernelLibrary &library)
      : stage(stage), block(block), library(library) {}

  void check(const program::Region &region) {
    SCOPED_TRACE(block.instructions[size_t(region.first)].id + " and " +
                 std::to_string(region.count - 1) + " more, " + region.symbol);
    program::RegionValues values = regionValues(block, region);
    Values native = referenceOf(region, values, Arith::Native);
    Values exact = referenceOf(region, values, Arith::F64);
    std::vector<Tensor> operands;
    std::vector<kernels::TensorType> types;
    for (ValueId value : values.operands)
      operands.push_back(native.at(value));
    for (ValueId value : values.results)
      types.push_back(stage.values[size_t(value)]);
    program::CompiledKernel kernel = library.find(region.symbol);
    ASSERT_NE(kernel, nullptr);
    KernelRun run;
    run.extent = region.extent;
    std::vector<Tensor> made = runKernel(kernel, run, operands, types);
    ErrorBound bound = boundOf(region, exact);
    for (size_t r = 0; r < made.size(); ++r) {
      ValueId value = values.results[r];
      if (!kernels::isFloat(types[r].dtype)) {
        EXPECT_TRUE(kernels::bitwiseEqual(made[r], native.at(value))) << "%" << value;
        continue;
      }
      bound.referenceError = largestDifference(native.at(value), exact.at(value));
      bound.magnitude = largestMagnitude(exact.at(value));
      EXPECT_LE(largestDifference(made[r], exact.at(value)), bound.of(types[r].dtype))
          << "%" << value << ": " << toString(types[r]);
    }
  }

private:
  Values referenceOf(const program::Region &region, const program::RegionValues &io, Arith arith) {
    Values values;
    std::mt19937 random(5);
    for (ValueId value : io.operands)
      values[value] = anyTensor(stage.values[size_t(value)], arith, random);
    for (int i = region.first; i < region.first + region.count; ++i) {
      const program::Instruction &instruction = block.instructions[size_t(i)];
      std::vector<Tensor> operands;
      std::vector<kernels::TensorType> types;
      for (ValueId value : instruction.operands)
        operands.push_back(values.at(value));
      for (ValueId value : instruction.results)
        types.push_back(stage.values[size_t(value)]);
      auto results = kernels::findKernel(instruction.op)(arith, instruction.attrs, operands, types);
      for (size_t r = 0; r < results.size(); ++r)
        values[instruction.results[r]] = results[r];
    }
    return values;
  }

  /// An instruction is taken for 24 steps, as many as gelu's gradient has, and for as many more as
  /// a sum over any of its operands has terms.
  ErrorBound boundOf(const program::Region &region, const Values &exact) const {
    constexpr int stepsPerInstruction = 24;
    ErrorBound bound;
    for (const auto &[value, tensor] : exact)
      bound.stepMagnitude = std::max(bound.stepMagnitude, largestMagnitude(tensor));
    for (int i = region.first; i < region.first + region.count; ++i) {
      bound.steps += stepsPerInstruction;
      for (ValueId value : block.instructions[size_t(i)].operands)
        if (const auto &shape = stage.values[size_t(value)].shape; !shape.empty())
          bound.steps += double(shape.back()) / 4;
    }
    return bound;
  }

  const program::Stage &stage;
  const program::Block &block;
  const KernelLibrary &library;
};

/// Compiles and checks all regions, one of each symbol; returns how many kernels of the program are
/// in regions, and how many there are.
std::pair<int, int> checkModel(const test::Model &model, const test::PlanRequest &request) {
  auto plan = makePlan(model, request);
  EXPECT_TRUE(plan) << plan.error().message;
  auto target = cpu::findCpuTarget("native");
  EXPECT_TRUE(target);
  auto compiled = driver::compilePlan(*model.step, *plan, &*target);
  EXPECT_TRUE(compiled) << compiled.error().message;
  if (!plan || !compiled)
    return {};
  KernelLibrary library(compiled->kernels, *target);
  std::set<std::string> checked;
  std::pair<int, int> counts = {0, 0};
  for (const program::Stage &stage : compiled->program.stages)
    for (program::BlockId id : stage.blocks()) {
      const program::Block &block = stage.block(id);
      for (const program::Instruction &instruction : block.instructions)
        counts.second += instruction.kind == program::InstructionKind::Kernel;
      for (const program::Region &region : block.regions) {
        counts.first += region.count;
        if (checked.insert(region.symbol).second)
          RegionChecker(stage, block, library).check(region);
      }
    }
  EXPECT_EQ(checked.size(), compiled->kernels.size());
  return counts;
}

test::PlanRequest on(const std::string &mesh, const std::string &strategy = "auto") {
  test::PlanRequest request;
  request.mesh = mesh;
  request.strategy = strategy;
  return request;
}

TEST(CompiledPrograms, TinyGpt2) {
  auto [inRegions, kernels] = checkModel(test::loadModel("tiny-gpt2"), on("dp=1"));
  EXPECT_GE(inRegions, kernels * 3 / 4);
}

TEST(CompiledPrograms, TinyLlamaInBFloat16OverTwoByTwo) {
  auto model = test::loadModel("tiny-llama", "adamw", {{"clip_norm", 1.0}}, "", "bf16");
  auto [inRegions, kernels] = checkModel(model, on("fsdp=2,tp=2"));
  EXPECT_GE(inRegions, kernels / 2);
}

TEST(CompiledPrograms, TinyResnet) {
  auto [inRegions, kernels] = checkModel(test::loadModel("tiny-resnet", "sgd"), on("dp=2"));
  EXPECT_GE(inRegions, kernels / 2);
}

TEST(CompiledPrograms, PipelineOfTinyGpt2) {
  auto [inRegions, kernels] = checkModel(test::loadModel("tiny-gpt2"), on("pp=2"));
  EXPECT_GE(inRegions, kernels / 2);
}

/// The same program twice is the same sources and, but for the regions, the same as without
/// kernels.
TEST(CompiledPrograms, RegionsOnlyAdd) {
  auto model = test::loadModel("tiny-gpt2");
  auto plan = makePlan(model, on("dp=1"));
  auto target = cpu::findCpuTarget("x86-64-v3");
  ASSERT_TRUE(plan && target);
  auto first = driver::compilePlan(*model.step, *plan, &*target);
  auto second = driver::compilePlan(*model.step, *plan, &*target);
  auto without = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(first && second && without);
  EXPECT_EQ(writeProgram(first->program), writeProgram(second->program));
  ASSERT_EQ(first->kernels.size(), second->kernels.size());
  for (size_t i = 0; i < first->kernels.size(); ++i)
    EXPECT_EQ(first->kernels[i].text, second->kernels[i].text);
  for (program::Stage &stage : first->program.stages)
    for (program::BlockId id : stage.blocks())
      stage.block(id).regions.clear();
  EXPECT_EQ(writeProgram(first->program), writeProgram(without->program));
}

} // namespace

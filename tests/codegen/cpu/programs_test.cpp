//===- programs_test.cpp - Every region of compiled models ------------------===//
//
// Each compiled region of a Program computes the same as its instructions by the reference kernels.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Region.h"
#include "runtime/cpu/NativeMachine.h"
#include "runtime/kernels/Kernel.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/frontend/ModelBuilder.h"
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

/// The values of a region, by the reference kernels.
using Values = std::map<ValueId, Tensor>;

/// Returns positive floats, or integers valid as labels below 64, class numbers, indices and
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
    run.inPlace = inPlaceOf(region, values);
    std::vector<Tensor> made = runKernel({kernel}, run, operands, types);
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
  /// Returns the results that the memory plan puts over operands.
  std::vector<std::pair<int, int>> inPlaceOf(const program::Region &region,
                                             const program::RegionValues &values) const {
    auto indexOf = [](const std::vector<ValueId> &list, ValueId value) {
      return int(std::find(list.begin(), list.end(), value) - list.begin());
    };
    std::vector<std::pair<int, int>> pairs;
    for (const program::SharedPlace &shared : sharedPlaces(stage, block, region))
      pairs.push_back(
          {indexOf(values.results, shared.result), indexOf(values.operands, shared.other)});
    return pairs;
  }

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

  /// An instruction counts as 24 steps, as many as gelu's gradient has, plus the number of terms of
  /// a sum over any of its operands.
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

/// Compiles all regions and checks one per symbol. Returns the number of the program's kernels in
/// regions, and in total.
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

//===----------------------------------------------------------------------===//
// Batch norm of a split batch
//===----------------------------------------------------------------------===//

/// Returns a model for images of size x size: convolution, pooling, convolution of stride 2, batch
/// norm, mean over the image, matrix. At sizes 4, 6 and 12 the norm sees 1, 2 x 2 and 3 x 3
/// elements per channel and sample.
std::string normOfSmallImage(int size) {
  std::mt19937 random(size);
  std::normal_distribution<float> normal(0, 0.4F);
  test::ModelBuilder builder;
  auto weights = [&](const std::string &name, const std::vector<int64_t> &dims) {
    std::vector<float> values(size_t(kernels::numElements(dims)));
    for (float &value : values)
      value = normal(random);
    builder.floats(name, dims, values);
  };
  builder.input("image", {"b", "3", std::to_string(size), std::to_string(size)});
  weights("w1", {4, 3, 3, 3});
  weights("w2", {8, 4, 1, 1});
  weights("w3", {8, 4});
  builder.floats("scale", {8}, {1, 0.5F, 2, -1, 0.7F, 1.5F, 1, -0.3F});
  builder.floats("bias", {8}, std::vector<float>(8, 0.1F));
  builder.floats("mean", {8}, std::vector<float>(8, 0));
  builder.floats("variance", {8}, std::vector<float>(8, 1));
  test::ModelBuilder::attr(builder.node("Conv", {"image", "w1"}, {"c1"}), "pads",
                           std::vector<int64_t>{1, 1, 1, 1});
  builder.node("Tanh", {"c1"}, {"t"});
  onnx::NodeProto &pool = builder.node("AveragePool", {"t"}, {"p"});
  test::ModelBuilder::attr(pool, "kernel_shape", std::vector<int64_t>{2, 2});
  test::ModelBuilder::attr(pool, "strides", std::vector<int64_t>{2, 2});
  test::ModelBuilder::attr(builder.node("Conv", {"p", "w2"}, {"c2"}), "strides",
                           std::vector<int64_t>{2, 2});
  builder.node("BatchNormalization", {"c2", "scale", "bias", "mean", "variance"}, {"n"});
  builder.node("GlobalAveragePool", {"n"}, {"g"});
  builder.node("Flatten", {"g"}, {"f"});
  builder.node("MatMul", {"f", "w3"}, {"logits"});
  builder.output("logits");
  return builder.bytes();
}

/// Compares native and compiled kernels, as in a run, with the reference kernels on all ranks:
/// losses, gradients and parameters within the float error bound.
void checkRun(const test::Model &model, const std::string &mesh, int64_t samplesPerRank) {
  test::PlanRequest request = on(mesh);
  request.globalBatch = 4;
  request.microBatch = samplesPerRank;
  auto plan = makePlan(model, request);
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(plan && target);
  auto compiled = driver::compilePlan(*model.step, *plan, &*target);
  ASSERT_TRUE(compiled) << compiled.error().message;
  test::TemporaryFolder folder;
  std::string path = folder.path(program::kernelsFile);
  auto linked = cpu::compileKernels(compiled->kernels, *target, "0123", path);
  ASSERT_TRUE(linked) << linked.error().message;
  auto file = program::OpenFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  auto opened = cpu::CompiledKernels::open(*file, "0123");
  ASSERT_TRUE(opened) << opened.error().message;
  constexpr int numSteps = 2;
  constexpr uint64_t numSeeds = 8; // as in tbc verify
  auto run = [&](Arith arith, uint64_t seed, const runtime::RankMachines &machines) {
    auto data = driver::makeRunData(*model.step, *plan, numSteps, arith, seed);
    EXPECT_TRUE(data) << data.error().message;
    auto record = driver::runParallel(compiled->program, *data, arith, machines);
    EXPECT_TRUE(record) << record.error().message;
    return record ? *record : driver::RunRecord();
  };
  std::vector<driver::RunRecord> reference, exact;
  for (uint64_t seed = 1; seed <= numSeeds; ++seed) {
    reference.push_back(run(Arith::Native, seed, {}));
    exact.push_back(run(Arith::F64, seed, {}));
  }
  driver::RunRecord native = run(Arith::Native, 1, [&](int64_t) -> Result<runtime::MachineMaker> {
    return cpu::nativeMachine({1, *opened});
  });
  ASSERT_FALSE(native.empty());
  for (const driver::Comparison &line :
       driver::compareFloats(compiled->program, exact[0], reference, exact, native))
    EXPECT_TRUE(line.equal) << line.name << ": " << line.error << " of " << line.bound;
}

TEST(CompiledPrograms, BatchNormOfSmallImagesOverRanks) {
  test::TemporaryFolder folder;
  for (int size : {4, 6, 9}) {
    test::Model model;
    model.context = driver::makeContext();
    driver::StepOptions options;
    options.modelPath = folder.write("norm.onnx", normOfSmallImage(size));
    options.optimizer = planner::Optimizer::Sgd;
    options.precision = planner::Precision::F32;
    auto step = driver::buildTrainingStep(*model.context, options);
    ASSERT_TRUE(step) << step.error().message;
    model.step = std::move(*step);
    for (auto [mesh, samplesPerRank] :
         {std::pair("dp=2", 2), std::pair("dp=4", 1), std::pair("fsdp=2", 2)}) {
      SCOPED_TRACE(std::to_string(size) + " on " + mesh);
      checkRun(model, mesh, samplesPerRank);
    }
  }
}

/// A program compiled twice gives the same sources. Except for kernels, it is the same as without
/// them.
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
  for (auto *compiled : {&*first, &*without})
    for (program::Stage &stage : compiled->program.stages)
      for (program::BlockId id : stage.blocks()) {
        std::vector<program::Region> planned;
        for (const program::Region &region : stage.block(id).regions)
          if (region.count > 1)
            planned.push_back({region.first, region.count, "", 0});
        stage.block(id).regions = planned;
      }
  EXPECT_EQ(writeProgram(first->program), writeProgram(without->program));
}

} // namespace

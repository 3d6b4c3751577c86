//===- ProgramKernels.cpp - Kernels of a program for the fake driver -------===//

#include "tests/runtime/cuda/ProgramKernels.h"

#include "runtime/abi/Region.h"
#include "runtime/abi/Seal.h"
#include "runtime/abi/Sha256.h"
#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <fstream>

namespace tbc::test {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;
using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::Region;
using program::ValueId;

static const char *imageText = ".version 8.0\n.target sm_80\n";

static Tensor readTensor(FakeAccess &memory, cuda::DeviceAddress address, const TensorType &type) {
  return Tensor::fromBytes(type, Arith::Native,
                           memory.read<char>(address, size_t(program::sizeBytes(type))));
}

static void writeTensor(FakeAccess &memory, cuda::DeviceAddress address, const Tensor &tensor) {
  std::vector<unsigned char> bytes = tensor.toBytes();
  std::copy(bytes.begin(), bytes.end(), memory.write<unsigned char>(address, bytes.size()));
}

/// Returns a kernel that runs the instructions of a region by their reference kernels.
static FakeKernel regionKernel(const program::Stage &stage, const Block &block,
                               const Region &region) {
  program::RegionValues values = program::regionValues(block, region);
  FakeKernel kernel;
  kernel.argumentBytes.assign(values.operands.size() + values.results.size(),
                              sizeof(cuda::DeviceAddress));
  std::vector<Instruction> instructions(block.instructions.begin() + region.first,
                                        block.instructions.begin() + region.first + region.count);
  kernel.run = [types = stage.values, instructions, values](FakeLaunch &launch) {
    std::map<ValueId, Tensor> known;
    size_t argument = 0;
    for (ValueId value : values.operands)
      known[value] =
          readTensor(launch.memory, launch.argument<cuda::DeviceAddress>(argument++), types[value]);
    for (const Instruction &instruction : instructions) {
      std::vector<Tensor> operands;
      for (ValueId value : instruction.operands)
        operands.push_back(known.at(value));
      std::vector<TensorType> resultTypes;
      for (ValueId value : instruction.results)
        resultTypes.push_back(types[value]);
      std::vector<Tensor> results = kernels::findKernel(instruction.op)(
          {Arith::Native}, instruction.attrs, operands, resultTypes);
      for (size_t r = 0; r < results.size(); ++r)
        known[instruction.results[r]] = results[r];
    }
    for (ValueId value : values.results)
      writeTensor(launch.memory, launch.argument<cuda::DeviceAddress>(argument++), known.at(value));
  };
  return kernel;
}

/// slot += value, of floats, in the arithmetic of the slot.
static FakeKernel accumulatorKernel(DType slotType, DType valueType) {
  FakeKernel kernel;
  kernel.argumentBytes = {sizeof(cuda::DeviceAddress), sizeof(cuda::DeviceAddress),
                          sizeof(int64_t)};
  kernel.run = [=](FakeLaunch &launch) {
    auto slot = launch.argument<cuda::DeviceAddress>(0);
    TensorType type = {slotType, {launch.argument<int64_t>(2)}};
    Tensor before = readTensor(launch.memory, slot, type);
    Tensor value =
        readTensor(launch.memory, launch.argument<cuda::DeviceAddress>(1), {valueType, type.shape});
    kernels::KernelContext context{Arith::Native};
    if (valueType != slotType)
      value = kernels::findKernel("cast")(context, {}, {value}, {type})[0];
    writeTensor(launch.memory, slot,
                kernels::findKernel("add")(context, {}, {before, value}, {type})[0]);
  };
  return kernel;
}

/// Returns whether one kernel for the whole region is correct under the memory plan.
static bool isSafe(const program::Stage &stage, const Block &block, const Region &region) {
  std::vector<program::SharedPlace> shared = program::sharedPlaces(stage, block, region);
  return std::all_of(shared.begin(), shared.end(), [](const auto &pair) { return pair.isSame; });
}

/// Names the planned regions, and adds others around them.
static void formRegions(const program::Stage &stage, Block &block, int mostInstructions,
                        const std::string &prefix) {
  std::vector<bool> isPlanned(block.instructions.size(), false);
  for (Region &region : block.regions) {
    region.symbol = prefix + std::to_string(region.first);
    region.extent = 1;
    std::fill_n(isPlanned.begin() + region.first, region.count, true);
  }
  auto isKernel = [&](int i) {
    return i < int(block.instructions.size()) && !isPlanned[size_t(i)] &&
           block.instructions[i].kind == InstructionKind::Kernel;
  };
  for (int i = 0; i < int(block.instructions.size());) {
    if (!isKernel(i)) {
      ++i;
      continue;
    }
    Region region{i, 1, prefix + std::to_string(i), 1};
    while (region.count < mostInstructions && isKernel(i + region.count)) {
      Region longer = region;
      ++longer.count;
      if (!isSafe(stage, block, longer))
        break;
      region = longer;
    }
    block.regions.push_back(region);
    i += region.count;
  }
  std::sort(block.regions.begin(), block.regions.end(),
            [](const Region &a, const Region &b) { return a.first < b.first; });
}

program::CudaKernels addProgramKernels(FakeDriver &driver, program::Program &program,
                                       int mostInstructions) {
  program::CudaKernels list = withFakeImage({});
  std::set<std::pair<DType, DType>> added;
  for (int s = 0; s < program.numStages(); ++s) {
    program::Stage &stage = program.stages[s];
    int number = 0;
    for (program::BlockId id : stage.blocks()) {
      Block &block = stage.block(id);
      formRegions(stage, block, mostInstructions,
                  "s" + std::to_string(s) + "_b" + std::to_string(number++) + "_i");
      for (const Region &region : block.regions) {
        driver.addKernel(region.symbol, regionKernel(stage, block, region));
        list.kernels.push_back({region.symbol, 1, 128, 0});
      }
      for (const program::BlockResult &result : block.results)
        if (result.accumulate)
          added.insert({stage.slots[result.slot].type.dtype, stage.values[result.value].dtype});
    }
  }
  for (auto [slot, value] : added) {
    std::string symbol = "add_" + std::string(name(slot)) + "_" + std::string(name(value));
    list.accumulators.push_back({symbol, slot, value, 256});
  }
  addAccumulators(driver, list);
  return list;
}

void addAccumulators(FakeDriver &driver, const program::CudaKernels &list) {
  for (const program::CudaAccumulator &accumulator : list.accumulators)
    driver.addKernel(accumulator.symbol, accumulatorKernel(accumulator.slot, accumulator.value));
}

program::CudaKernels withFakeImage(program::CudaKernels list) {
  list.images = {{80, program::CudaCode::Ptx, "kernels.sm_80.ptx", sha256Hex(imageText)}};
  return list;
}

void writeKernels(program::CudaKernels kernels, const std::string &folder,
                  const std::string &programHash) {
  kernels.programSha256 = programHash;
  std::ofstream(folder + "/" + program::cudaKernelsFile) << program::writeCudaKernels(kernels);
  for (const program::CudaImage &image : kernels.images)
    std::ofstream(folder + "/" + image.file) << imageText;
}

cuda::FolderFiles filesIn(const std::string &folder) {
  return [folder](const std::string &name) -> Result<std::string> {
    auto file = program::OpenFile::open(folder + "/" + name);
    return file ? file->read() : file.error();
  };
}

} // namespace tbc::test

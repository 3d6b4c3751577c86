//===- Launches.cpp - Kernel launches of a step ----------------------------===//

#include "tools/roofline/Launches.h"

#include "runtime/abi/Region.h"
#include "runtime/cuda/LibraryRequests.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc::roofline {

using program::Block;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;
using program::ValueId;

const char *name(By by) {
  switch (by) {
  case By::Kernel:
    return "kernel";
  case By::CublasLt:
    return "cuBLASLt";
  case By::Cudnn:
    return "cuDNN";
  case By::Host:
    return "host";
  }
  return "";
}

std::string Launch::place(const program::Program &program) const {
  return instructions.empty() ? describe(program, stage, block)
                              : describe(program, stage, block, instructions.front());
}

namespace {

/// Joins the names of ops. In a long list, as that of a joint kernel, names that repeat stand once:
/// "60 x scale_by+adamw".
std::string joined(const std::vector<std::string> &ops) {
  constexpr size_t mostOps = 40; // of a kernel that is planned (planner/reshard/Kernels.h)
  size_t period = ops.size();
  if (ops.size() > mostOps)
    for (period = 1; period < ops.size(); ++period)
      if (ops.size() % period == 0 &&
          std::equal(ops.begin() + std::ptrdiff_t(period), ops.end(), ops.begin()))
        break;
  std::string text = period < ops.size() ? std::to_string(ops.size() / period) + " x " : "";
  for (size_t i = 0; i < period; ++i)
    text += (i == 0 ? "" : "+") + ops[i];
  return text;
}

class Lister {
public:
  Lister(const program::Program &program, const program::CudaKernels *kernels, int capability)
      : program(program), kernels(kernels), capability(capability) {}

  std::vector<Launch> run() {
    for (stage = 0; stage < program.numStages(); ++stage) {
      std::map<BlockId, int64_t> runs;
      for (const schedule::Action &action : actionsOf(program, stage))
        ++runs[action];
      for (BlockId id : code().blocks())
        if (runs.count(id))
          addBlock(id, runs.at(id));
    }
    return std::move(launches);
  }

private:
  const program::Stage &code() const { return program.stages[size_t(stage)]; }

  void addBlock(BlockId id, int64_t perStep) {
    const Block &block = code().block(id);
    cuda::LibraryUse use;
    if (kernels)
      use = cuda::libraryUseOf(program, stage, id, capability);
    std::map<int, const program::Region *> begins;
    for (const program::Region &region : block.regions)
      begins[region.first] = &region;
    std::vector<int> leftOut; // fused into the next library call
    for (int i = 0; i < int(block.instructions.size());) {
      Launch launch;
      launch.stage = stage, launch.block = id, launch.perStep = perStep;
      auto begin = begins.find(i);
      int count = begin == begins.end() ? 1 : begin->second->count;
      for (int k = i; k < i + count; ++k)
        launch.instructions.push_back(k);
      int first = i;
      i += count;
      if (use.unread.count(first))
        continue;
      if (use.leftOut.count(first)) {
        leftOut.insert(leftOut.end(), launch.instructions.begin(), launch.instructions.end());
        continue;
      }
      InstructionKind kind = block.instructions[size_t(first)].kind;
      if (kind != InstructionKind::Kernel && kind != InstructionKind::ShardSlice)
        continue;
      if (begin != begins.end())
        launch.symbol = begin->second->symbol;
      else if (kernels && kind == InstructionKind::Kernel)
        launch.by = By::Host;
      if (auto library = use.regions.find(first); library != use.regions.end()) {
        launch.by = library->second == cuda::Library::CublasLt ? By::CublasLt : By::Cudnn;
        launch.symbol.clear();
        takeLeftOut(block, leftOut, launch);
      }
      finish(block, launch);
    }
    for (const program::BlockResult &result : block.results)
      if (result.accumulate)
        addSum(id, perStep, result);
  }

  /// Adds the left-out instructions whose results `launch` needs.
  static void takeLeftOut(const Block &block, std::vector<int> &leftOut, Launch &launch) {
    std::set<ValueId> needed;
    auto need = [&](int index) {
      const Instruction &instruction = block.instructions[size_t(index)];
      needed.insert(instruction.operands.begin(), instruction.operands.end());
    };
    for (int index : launch.instructions)
      need(index);
    for (size_t k = leftOut.size(); k-- > 0;) {
      const std::vector<ValueId> &made = block.instructions[size_t(leftOut[k])].results;
      if (std::none_of(made.begin(), made.end(), [&](ValueId v) { return needed.count(v); }))
        continue;
      need(leftOut[k]);
      launch.instructions.insert(launch.instructions.begin(), leftOut[k]);
      leftOut.erase(leftOut.begin() + std::ptrdiff_t(k));
    }
  }

  /// Sets the launch's name, reads and writes.
  void finish(const Block &block, Launch &launch) {
    std::set<ValueId> defined, read, outside;
    std::vector<std::string> ops;
    std::set<int> inside(launch.instructions.begin(), launch.instructions.end());
    for (int index = 0; index < int(block.instructions.size()); ++index)
      if (!inside.count(index))
        for (ValueId value : block.instructions[size_t(index)].operands)
          outside.insert(value);
    for (const program::BlockResult &result : block.results)
      outside.insert(result.value);
    for (int index : launch.instructions) {
      const Instruction &instruction = block.instructions[size_t(index)];
      bool isSlice = instruction.kind == InstructionKind::ShardSlice;
      ops.push_back(isSlice ? "shard_slice" : instruction.op);
      for (ValueId value : instruction.operands)
        if (!defined.count(value) && read.insert(value).second)
          launch.operands.push_back(value);
      for (ValueId value : instruction.results) {
        defined.insert(value);
        if (outside.count(value))
          launch.results.push_back(value);
      }
    }
    launch.what = joined(ops);
    launches.push_back(std::move(launch));
  }

  void addSum(BlockId id, int64_t perStep, const program::BlockResult &result) {
    const kernels::TensorType &slot = code().slots[size_t(result.slot)].type;
    kernels::DType value = code().values[size_t(result.value)].dtype;
    Launch launch;
    launch.stage = stage, launch.block = id, launch.perStep = perStep;
    launch.what = program::sumName(slot.dtype, value);
    launch.operands = {result.value};
    launch.addedBytes = 2 * program::sizeBytes(slot);
    if (kernels &&
        std::none_of(kernels->accumulators.begin(), kernels->accumulators.end(),
                     [&](const auto &a) { return a.slot == slot.dtype && a.value == value; }))
      launch.by = By::Host;
    launches.push_back(std::move(launch));
  }

  const program::Program &program;
  const program::CudaKernels *kernels;
  const int capability;
  int stage = 0;
  std::vector<Launch> launches;
};

} // namespace

std::vector<Launch> launchesOf(const program::Program &program, const program::CudaKernels *kernels,
                               int capability) {
  return Lister(program, kernels, capability).run();
}

} // namespace tbc::roofline

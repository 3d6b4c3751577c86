//===- Roofline.cpp - Roofline time of kernel launches ---------------------===//

#include "tools/roofline/Roofline.h"

#include <algorithm>
#include <tuple>

namespace tbc::roofline {

using program::Instruction;
using program::ValueId;

const char *name(Bound bound) {
  switch (bound) {
  case Bound::Memory:
    return "memory";
  case Bound::Flops:
    return "flops";
  case Bound::Launch:
    return "launch";
  case Bound::Blocks:
    return "blocks";
  case Bound::Host:
    return "host";
  }
  return "";
}

namespace {

class Estimator {
public:
  Estimator(const program::Program &program, const program::CudaKernels *kernels,
            const Machine &machine, const CostOf &costOf)
      : program(program), isCuda(kernels != nullptr), machine(machine), costOf(costOf) {
    if (kernels)
      for (const program::CudaKernel &kernel : kernels->kernels)
        kernelOf[kernel.symbol] = &kernel;
  }

  Result<Estimate> estimate(const Launch &launch) {
    const program::Stage &stage = program.stages[size_t(launch.stage)];
    const program::Block &block = stage.block(launch.block);
    Estimate found;
    found.launch = launch;
    found.bytes = double(launch.addedBytes);
    std::map<ValueId, double> bytes;
    for (ValueId value : launch.operands)
      bytes[value] = double(program::sizeBytes(stage.values[size_t(value)]));
    double arithmetic = 0;
    std::map<ValueId, double> gathered; // bytes read of an operand
    for (int index : launch.instructions) {
      const Instruction &instruction = block.instructions[size_t(index)];
      OpCost cost;
      if (instruction.kind == program::InstructionKind::Kernel) {
        auto known = costOf(stage, instruction);
        if (!known)
          return Error{known.error().code, describe(program, launch.stage, launch.block, index) +
                                               ": " + known.error().message};
        cost = *known;
      }
      found.flops += cost.flops;
      arithmetic += cost.flops / rateOf(stage, instruction, cost, launch.by);
      double results = 0;
      for (ValueId value : instruction.results)
        results += double(program::sizeBytes(stage.values[size_t(value)]));
      bool isPartial =
          reshard::readsPart(cost.kernelClass) || cost.kernelClass == reshard::KernelClass::None;
      for (ValueId value : instruction.operands)
        if (bytes.count(value))
          gathered[value] = std::max(gathered[value], isPartial ? results : bytes[value]);
    }
    for (ValueId value : launch.operands)
      found.bytes += gathered.count(value) ? std::min(bytes[value], gathered[value]) : bytes[value];
    for (ValueId value : launch.results)
      found.bytes += double(program::sizeBytes(stage.values[size_t(value)]));
    time(found, arithmetic);
    return found;
  }

private:
  double rateOf(const program::Stage &stage, const Instruction &instruction, const OpCost &cost,
                By by) const {
    DType dtype = DType::F32;
    if (!instruction.operands.empty())
      dtype = stage.values[size_t(instruction.operands.front())].dtype;
    double peak = machine.cluster.peakFlops(cost.kernelClass, dtype);
    if (!isCuda || by != By::Kernel)
      return peak;
    constexpr int bytesOfHalf = 2;
    if (!cost.own.usesTensorCores || kernels::byteWidth(dtype) != bytesOfHalf)
      return machine.cluster.vectorFlopsPerSecond;
    return peak / cost.own.work * (machine.processor ? machine.processor->mmaShare : 1);
  }

  void time(Estimate &found, double arithmetic) const {
    const planner::Cluster &cluster = machine.cluster;
    auto known = kernelOf.find(found.launch.symbol);
    const program::CudaKernel *kernel = known == kernelOf.end() ? nullptr : known->second;
    if (kernel) {
      found.launches = 1 + int(kernel->then.size());
      found.bytes += 2 * double(kernel->workspaceBytes);
      found.blocks = kernel->blocks;
      for (const program::CudaLaunch &later : kernel->then)
        found.blocks = std::max(found.blocks, later.blocks);
    }
    double movement = found.bytes / cluster.memoryBytesPerSecond;
    found.bound = movement >= arithmetic ? Bound::Memory : Bound::Flops;
    found.seconds = std::max(movement, arithmetic);
    if (found.launch.by == By::Host) {
      found.bound = Bound::Host;
      found.seconds = found.bytes / cluster.hostBytesPerSecond;
    }
    if (kernel && machine.processor && found.blocks < machine.processor->multiprocessors) {
      found.seconds *= double(machine.processor->multiprocessors) / double(found.blocks);
      found.bound = Bound::Blocks;
    }
    double leastSeconds = cluster.launchSeconds * found.launches;
    if (found.seconds < leastSeconds) {
      found.seconds = leastSeconds;
      found.bound = Bound::Launch;
    }
  }

  const program::Program &program;
  const bool isCuda;
  const Machine &machine;
  const CostOf &costOf;
  std::map<std::string, const program::CudaKernel *> kernelOf;
};

} // namespace

Result<std::vector<Estimate>> estimate(const program::Program &program,
                                       const program::CudaKernels *kernels, const Machine &machine,
                                       const CostOf &costOf) {
  Estimator estimator(program, kernels, machine, costOf);
  constexpr int anyCapability = 90;
  int capability = machine.processor ? machine.processor->capability : anyCapability;
  std::vector<Estimate> list;
  for (const Launch &launch : launchesOf(program, kernels, capability)) {
    auto found = estimator.estimate(launch);
    if (!found)
      return found.error();
    list.push_back(std::move(*found));
  }
  return list;
}

Bound Kind::bound() const {
  auto most = std::max_element(bySeconds.begin(), bySeconds.end(),
                               [](const auto &a, const auto &b) { return a.second < b.second; });
  return most == bySeconds.end() ? Bound::Memory : most->first;
}

std::vector<Kind> kindsOf(const std::vector<Estimate> &estimates) {
  std::map<std::tuple<int, std::string, By>, Kind> kinds;
  for (const Estimate &estimate : estimates) {
    const Launch &launch = estimate.launch;
    Kind &kind = kinds[{launch.stage, launch.what, launch.by}];
    kind.stage = launch.stage, kind.what = launch.what, kind.by = launch.by;
    auto times = double(launch.perStep);
    kind.launches += launch.perStep * estimate.launches;
    kind.bytes += times * estimate.bytes;
    kind.flops += times * estimate.flops;
    kind.seconds += times * estimate.seconds;
    kind.bySeconds[estimate.bound] += times * estimate.seconds;
    if (estimate.bound == Bound::Blocks)
      kind.fewestBlocks =
          kind.fewestBlocks ? std::min(kind.fewestBlocks, estimate.blocks) : estimate.blocks;
  }
  std::vector<Kind> list;
  for (auto &[key, kind] : kinds)
    list.push_back(std::move(kind));
  std::sort(list.begin(), list.end(), [](const Kind &a, const Kind &b) {
    return std::tuple(a.stage, -a.seconds, a.what, a.by) <
           std::tuple(b.stage, -b.seconds, b.what, b.by);
  });
  return list;
}

} // namespace tbc::roofline

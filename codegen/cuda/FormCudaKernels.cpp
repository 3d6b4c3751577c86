//===- FormCudaKernels.cpp - Choose the GPU kernels of a Program ------------===//

#include "codegen/cuda/FormCudaKernels.h"

#include "codegen/cuda/EmitFp8Kernels.h"
#include "codegen/cuda/EmitSparseKernels.h"
#include "codegen/cuda/JoinKernels.h"
#include "codegen/cuda/NestEmitter.h"
#include "codegen/cuda/ThreadKernel.h"
#include "codegen/region/RegionFunction.h"
#include "runtime/abi/Positions.h"
#include "runtime/abi/Region.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <map>
#include <set>

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;
using program::InstructionKind;

namespace {

/// Collects instructions without a kernel, by op or accumulated type.
class Missing {
public:
  void add(const std::string &what, const std::string &place) {
    auto [entry, isNew] = counts.try_emplace(what, 0, place);
    ++entry->second.first;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto &[what, count] : counts)
      list.push_back(what);
    return list;
  }
  std::string text() const {
    std::string text;
    for (const auto &[what, count] : counts)
      text += "\n  " + what + ": " + std::to_string(count.first) + ", the first is " + count.second;
    return text;
  }

private:
  std::map<std::string, std::pair<int, std::string>> counts; // count, location of the first
};

std::vector<bool> isInRegion(const program::Block &block) {
  std::vector<bool> inRegion(block.instructions.size(), false);
  for (const program::Region &region : block.regions)
    for (int i = region.first; i < region.first + region.count; ++i)
      inRegion[size_t(i)] = true;
  return inRegion;
}

class Former {
public:
  Former(program::Program &program, MLIRContext &context, const CudaTarget &target)
      : program(program), context(context), target(target) {}

  Result<CudaSources> run(const EmittedOps &origins) {
    result.regions = region::formRegions(
        program, origins,
        [&](func::FuncOp function, const region::Domain &domain) {
          FailureOr<region::Kernel> kernel = emitCudaKernel(function, domain, target.form);
          if (failed(kernel))
            return kernel;
          std::string symbol = region::symbolOf(*kernel->module);
          if (kernel->workspaceBytes > 0)
            inParts.try_emplace(symbol, entryOf(symbol, *kernel));
          else if (FailureOr<region::Kernel> thread = emitThread(function, domain, target.form);
                   succeeded(thread))
            threads.try_emplace(symbol, std::move(*thread));
          return kernel;
        },
        region::Joins::ColumnSums);
    joinKernels(program, result.regions, threads, context, target.form);
    result.sources = std::move(result.regions.sources);
    for (int s = 0; s < program.numStages(); ++s)
      for (program::BlockId id : program.stages[size_t(s)].blocks())
        addBlock(s, id, origins[size_t(s)].at(id));
    if (sumsFloats())
      for (auto &[symbol, kernel] : emitSparseKernels(context, target.form))
        addRunKernel(symbol, kernel);
    for (auto &[symbol, kernel] : emitFp8Kernels(context, multipliedTypes(), target.form))
      addRunKernel(symbol, kernel);
    result.list.hostOps = missing.names();
    if (!result.list.hostOps.empty() && !target.allowsHostOps)
      return Error{
          ErrorCode::Usage,
          "there is no kernel for GPUs of these ops:" + missing.text() +
              "\ncompile with --target cpu, or with --host-ops, by which the host executes "
              "them, slowly"};
    return std::move(result);
  }

private:
  /// Whether ranks sum f32 tensors: a run may compress these to sparse values.
  bool sumsFloats() const {
    for (const program::Stage &stage : program.stages)
      for (program::BlockId id : stage.blocks())
        for (const program::Instruction &instruction : stage.block(id).instructions)
          if ((instruction.kind == InstructionKind::AllReduce ||
               instruction.kind == InstructionKind::ReduceScatter) &&
              groupSizeOf(instruction.comm, program.pipelineAxis) > 1 &&
              llvm::any_of(instruction.operands, [&](program::ValueId value) {
                return stage.values[size_t(value)].dtype == DType::F32;
              }))
            return true;
    return false;
  }

  /// Returns the operand types of matmuls, for runs that multiply in fp8.
  std::set<DType> multipliedTypes() const {
    std::set<DType> types;
    for (const program::Stage &stage : program.stages)
      for (program::BlockId id : stage.blocks())
        for (const program::Instruction &instruction : stage.block(id).instructions)
          if (instruction.kind == InstructionKind::Kernel && instruction.op == "einsum")
            for (program::ValueId value : instruction.operands)
              if (DType type = stage.values[size_t(value)].dtype; program::fp8::isQuantised(type))
                types.insert(type);
    return types;
  }

  /// Adds a kernel used by options of a run, not by an instruction.
  void addRunKernel(const std::string &symbol, region::Kernel &kernel) {
    result.sources.push_back({symbol, textOf(*kernel.module)});
    result.list.kernels.push_back(entryOf(symbol, kernel));
  }

  static program::CudaKernel entryOf(const std::string &symbol, const region::Kernel &kernel) {
    program::CudaKernel entry;
    auto threadsOf = [](int threads) { return threads > 0 ? threads : threadsPerBlock; };
    entry.symbol = symbol, entry.blocks = kernel.extent;
    entry.threads = threadsOf(kernel.threads);
    entry.workspaceBytes = kernel.workspaceBytes;
    for (auto [i, launch] : llvm::enumerate(kernel.then))
      entry.then.push_back(
          {region::symbolOfLaunch(symbol, i + 1), launch.extent, threadsOf(launch.threads), 0});
    return entry;
  }

  void addBlock(int s, program::BlockId id, ArrayRef<Operation *> ops) {
    program::Stage &stage = program.stages[size_t(s)];
    program::Block &block = stage.block(id);
    for (const program::Region &region : block.regions)
      if (symbols.insert(region.symbol).second) {
        auto [entry, isOne] = inParts.try_emplace(region.symbol);
        if (isOne)
          entry->second.threads = threadsPerBlock;
        entry->second.symbol = region.symbol, entry->second.blocks = region.extent;
        result.list.kernels.push_back(entry->second);
      }
    std::vector<bool> inRegion = isInRegion(block);
    for (size_t i = 0; i < block.instructions.size(); ++i)
      if (block.instructions[i].kind == InstructionKind::Kernel && !inRegion[i] &&
          !addOpKernel(s, id, int(i), ops[i]))
        missing.add(block.instructions[i].op, describe(program, s, id, int(i)));
    std::sort(block.regions.begin(), block.regions.end(),
              [](const auto &a, const auto &b) { return a.first < b.first; });
    for (const program::BlockResult &write : block.results)
      if (write.accumulate)
        addAccumulator(stage.slots[size_t(write.slot)].type.dtype,
                       stage.values[size_t(write.value)].dtype, describe(program, s, id));
  }

  /// Makes a region of one instruction; false if it has no kernel.
  bool addOpKernel(int s, program::BlockId id, int index, Operation *op) {
    program::Stage &stage = program.stages[size_t(s)];
    program::Block &block = stage.block(id);
    program::Region region{index, 1, "", 1};
    program::RegionValues values = regionValues(block, region);
    if (values.results.empty())
      return false;
    const program::Instruction &instruction = block.instructions[size_t(index)];
    FailureOr<region::Kernel> kernel = emitOpKernel(
        context, callOf(stage, withoutIndices(block, instruction), values), target.form);
    if (failed(kernel) && op)
      kernel = nestKernel(instruction, values, op);
    if (failed(kernel))
      return false;
    region.extent = kernel->extent;
    region.symbol = nameByContent(*kernel->module);
    block.regions.push_back(region);
    result.regions.overwrites[{s, id}][index] = {values, std::move(kernel->mayOverwrite)};
    if (symbols.insert(region.symbol).second) {
      result.sources.push_back({region.symbol, textOf(*kernel->module)});
      result.list.kernels.push_back(entryOf(region.symbol, *kernel));
    }
    return true;
  }

  static int numberOf(const std::vector<program::ValueId> &list, program::ValueId value) {
    auto found = std::find(list.begin(), list.end(), value);
    return found == list.end() ? -1 : int(found - list.begin());
  }

  /// Returns an attention without the position ids 0, 1, 2, ..., which are the default. So the
  /// kernel knows from the numbers of queries and keys which of them its window hides.
  static program::Instruction withoutIndices(const program::Block &block,
                                             program::Instruction instruction) {
    if (!program::positionsAreIndices(block, instruction))
      return instruction;
    auto first = instruction.operands.begin() + ptrdiff_t(*program::positionOperand(instruction));
    instruction.operands.erase(first, first + 2);
    instruction.attrs.set("placed", false);
    return instruction;
  }

  static OpCall callOf(const program::Stage &stage, const program::Instruction &instruction,
                       const program::RegionValues &values) {
    OpCall call{instruction.op, instruction.attrs, {}, {}, {}, {}, 0};
    for (program::ValueId value : instruction.operands) {
      call.operands.push_back(stage.values[size_t(value)]);
      call.operandBuffers.push_back(numberOf(values.operands, value));
    }
    int numOperands = int(values.operands.size());
    for (program::ValueId value : instruction.results) {
      call.results.push_back(stage.values[size_t(value)]);
      int number = numberOf(values.results, value);
      call.resultBuffers.push_back(number < 0 ? -1 : numOperands + number);
    }
    call.numBuffers = numOperands + int(values.results.size());
    return call;
  }

  /// Emits a single op as a nest of loops, if the region search left it out.
  FailureOr<region::Kernel> nestKernel(const program::Instruction &instruction,
                                       const program::RegionValues &values, Operation *op) {
    if (!region::mayBeCompiled(op))
      return failure();
    SmallVector<Value> operands, results;
    for (program::ValueId value : values.operands)
      operands.push_back(op->getOperand(unsigned(numberOf(instruction.operands, value))));
    for (program::ValueId value : values.results)
      results.push_back(op->getResult(unsigned(numberOf(instruction.results, value))));
    OwningOpRef<ModuleOp> module = region::makeRegionFunction({op}, operands, results);
    if (!module)
      return failure();
    FailureOr<region::Domain> domain = region::findDomain(region::functionOf(*module));
    if (failed(domain))
      return failure();
    return emitCudaKernel(region::functionOf(*module), *domain, target.form);
  }

  static std::string textOf(ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream);
    return text;
  }
  /// Renames the function by its content, so equal functions have equal names.
  static std::string nameByContent(ModuleOp module) {
    std::string symbol = region::symbolOf(module);
    region::nameFunctions(module, symbol);
    return symbol;
  }

  void addAccumulator(DType slot, DType value, const std::string &place) {
    std::string slotName(name(slot)), valueName(name(value));
    std::string symbol = "tbc_add_" + valueName + "_to_" + slotName;
    if (symbols.count(symbol))
      return;
    std::optional<std::string> text = emitAccumulator(context, symbol, slot, value);
    if (!text)
      return missing.add(program::sumName(slot, value), place);
    symbols.insert(symbol);
    if (target.form == Form::Device)
      result.sources.push_back({symbol, *text});
    result.list.accumulators.push_back({symbol, slot, value, threadsPerBlock});
  }

  program::Program &program;
  MLIRContext &context;
  const CudaTarget &target;
  CudaSources result;
  std::set<std::string> symbols;
  std::map<std::string, program::CudaKernel> inParts; // with a workspace, by symbol
  ThreadCode threads;
  Missing missing;
};

} // namespace

Result<CudaSources> formCudaKernels(program::Program &program, const EmittedOps &origins,
                                    MLIRContext &context, const CudaTarget &target) {
  return Former(program, context, target).run(origins);
}

} // namespace tbc::cuda

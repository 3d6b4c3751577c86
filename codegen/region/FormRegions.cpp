//===- FormRegions.cpp - Choose the kernels of a Program to compile together -===//

#include "codegen/region/FormRegions.h"

#include "codegen/region/RegionFunction.h"
#include "runtime/abi/ObservedOps.h"
#include "runtime/abi/Region.h"
#include "runtime/abi/Sha256.h"

#include <algorithm>

using namespace mlir;

namespace tbc::region {

using program::Region;
using program::ValueId;

namespace {

/// Longer regions take long to compile and run no faster.
constexpr int maxRegionInstructions = 48;
constexpr size_t symbolHashDigits = 24;

class RegionFormer {
public:
  RegionFormer(const program::Stage &stage, program::Block &block, ArrayRef<Operation *> ops,
               const EmitFn &emit, std::vector<KernelSource> &sources,
               std::set<std::string> &symbols)
      : stage(stage), block(block), ops(ops), emit(emit), sources(sources), symbols(symbols) {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i])
        continue;
      const program::Instruction &instruction = block.instructions[i];
      // A collective of n tensors comes from n ops in a row.
      size_t operand = 0, result = 0;
      for (Operation *op = ops[i];
           operand < instruction.operands.size() || result < instruction.results.size();
           op = op->getNextNode()) {
        for (Value value : op->getOperands())
          valueOf[instruction.operands[operand++]] = value;
        for (Value value : op->getResults())
          valueOf[instruction.results[result++]] = value;
      }
    }
  }

  void run() {
    for (int first = 0; first < int(ops.size());) {
      int count = longestNest(first);
      while (count > 0 && !addRegion({first, count, "", 1}))
        --count;
      first += std::max(count, 1);
    }
  }

private:
  bool isKernel(int i) const {
    const program::Instruction &instruction = block.instructions[i];
    return ops[i] && instruction.kind == program::InstructionKind::Kernel &&
           instruction.id != program::gradientNormId && mayBeCompiled(ops[i]);
  }

  OwningOpRef<ModuleOp> functionOfRegion(const Region &region,
                                         const program::RegionValues &values) const {
    SmallVector<Value> operands, results;
    for (ValueId value : values.operands)
      operands.push_back(valueOf.at(value));
    for (ValueId value : values.results)
      results.push_back(valueOf.at(value));
    return makeRegionFunction(ops.slice(region.first, region.count), operands, results);
  }

  bool isNest(const Region &region) const {
    program::RegionValues values = regionValues(block, region);
    OwningOpRef<ModuleOp> module = functionOfRegion(region, values);
    return module && succeeded(findDomain(functionOf(*module)));
  }

  /// Returns the number of instructions from `first` on that form one nest of loops, as does every
  /// shorter run. A run may fail only because the readers of its values are missing, so the search
  /// looks two instructions ahead.
  int longestNest(int first) const {
    constexpr int lookahead = 2;
    int longest = 0;
    for (int count = 1; count <= maxRegionInstructions && first + count <= int(ops.size()) &&
                        count <= longest + 1 + lookahead;
         ++count) {
      if (!isKernel(first + count - 1))
        break;
      if (isNest({first, count, "", 1}))
        longest = count;
    }
    return longest;
  }

  /// Adds the region for compilation; false if its kernel conflicts with the memory plan.
  bool addRegion(Region region) {
    program::RegionValues values = regionValues(block, region);
    if (values.results.empty())
      return false;
    OwningOpRef<ModuleOp> module = functionOfRegion(region, values);
    if (!module)
      return false;
    func::FuncOp function = functionOf(*module);
    FailureOr<Domain> domain = findDomain(function);
    if (failed(domain))
      return false;
    FailureOr<Kernel> kernel = emit(function, *domain);
    if (failed(kernel) || !fits(region, values, *kernel))
      return false;
    region.extent = kernel->extent;
    region.symbol = symbolOf(*kernel->module);
    block.regions.push_back(region);
    return true;
  }

  bool fits(const Region &region, const program::RegionValues &values, const Kernel &kernel) const {
    auto indexOf = [](const std::vector<ValueId> &list, ValueId value) {
      return size_t(std::find(list.begin(), list.end(), value) - list.begin());
    };
    for (const program::SharedPlace &shared : sharedPlaces(stage, block, region))
      if (!shared.isSame || !kernel.mayOverwrite[indexOf(values.results, shared.result)]
                                                [indexOf(values.operands, shared.other)])
        return false;
    return true;
  }

  /// Returns the function's name; equal functions share one.
  std::string symbolOf(ModuleOp module) {
    auto print = [&] {
      std::string text;
      llvm::raw_string_ostream stream(text);
      module.print(stream);
      return text;
    };
    std::string symbol = "tbc_" + sha256Hex(print()).substr(0, symbolHashDigits);
    if (symbols.insert(symbol).second) {
      functionOf(module).setName(symbol);
      sources.push_back({symbol, print()});
    }
    return symbol;
  }

  const program::Stage &stage;
  program::Block &block;
  ArrayRef<Operation *> ops;
  const EmitFn &emit;
  std::vector<KernelSource> &sources;
  std::set<std::string> &symbols;
  std::map<ValueId, Value> valueOf;
};

} // namespace

std::vector<KernelSource> formRegions(program::Program &program, const EmittedOps &origins,
                                      const EmitFn &emit) {
  std::vector<KernelSource> sources;
  std::set<std::string> symbols;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    program::Stage &stage = program.stages[s];
    for (program::BlockId id : stage.blocks())
      RegionFormer(stage, stage.block(id), origins[s].at(id), emit, sources, symbols).run();
  }
  return sources;
}

} // namespace tbc::region

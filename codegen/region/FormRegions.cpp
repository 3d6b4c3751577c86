//===- FormRegions.cpp - Choose the kernels of a Program to compile together -===//

#include "codegen/region/FormRegions.h"

#include "codegen/region/RegionFunction.h"
#include "runtime/abi/ObservedOps.h"

#include <algorithm>

using namespace mlir;

namespace tbc::region {

using program::Region;
using program::ValueId;

namespace {

class RegionFormer {
public:
  RegionFormer(program::Block &block, ArrayRef<Operation *> ops, const EmitFn &emit,
               RegionKernels &made, std::map<int, Overwrites> &overwrites,
               std::set<std::string> &symbols, Joins joins)
      : block(block), ops(ops), emit(emit), made(made), overwrites(overwrites), symbols(symbols),
        joins(joins) {
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
    std::vector<Region> all = plannedAndSingle();
    block.regions.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size() && addBoth(all[i], all[i + 1])) {
        ++i;
        continue;
      }
      if (addRegion(all[i]) || all[i].count == 1)
        continue;
      ++made.apart;
      for (int k = all[i].first; k < all[i].first + all[i].count; ++k)
        if (isKernel(k))
          addRegion({k, 1, "", 1});
    }
  }

private:
  /// Returns the regions of the IR, and one for each other kernel, in order.
  std::vector<Region> plannedAndSingle() const {
    std::vector<Region> all = block.regions;
    std::vector<bool> isIn(ops.size(), false);
    for (const Region &region : all)
      std::fill_n(isIn.begin() + region.first, region.count, true);
    for (int i = 0; i < int(ops.size()); ++i)
      if (!isIn[i] && isKernel(i))
        all.push_back({i, 1, "", 1});
    std::sort(all.begin(), all.end(),
              [](const Region &a, const Region &b) { return a.first < b.first; });
    return all;
  }

  /// Adds both regions as one, if the second has column sums of the first one's rows.
  bool addBoth(const Region &rows, const Region &sums) {
    if (joins == Joins::None || rows.first + rows.count != sums.first)
      return false;
    program::RegionValues before = regionValues(block, rows), behind = regionValues(block, sums);
    bool isShared = llvm::any_of(behind.operands, [&](ValueId value) {
      return llvm::is_contained(before.operands, value) ||
             llvm::is_contained(before.results, value);
    });
    return isShared && addRegion({rows.first, rows.count + sums.count, "", 1},
                                 /*hasColumnSums=*/true);
  }

  /// Whether a kernel might execute instruction `i`, in a region of `count` instructions.
  bool isKernel(int i, int count = 1) const {
    const program::Instruction &instruction = block.instructions[i];
    return ops[i] && instruction.kind == program::InstructionKind::Kernel &&
           instruction.id != program::gradientNormId &&
           (mayBeCompiled(ops[i]) || (count > 1 && movesColumns(ops[i])));
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

  /// Adds the region for compilation; false if there is no kernel for it. `hasColumnSums`: only if
  /// it is such a kernel.
  bool addRegion(Region region, bool hasColumnSums = false) {
    for (int i = region.first; i < region.first + region.count; ++i)
      if (!isKernel(i, region.count))
        return false;
    program::RegionValues values = regionValues(block, region);
    if (values.results.empty())
      return false;
    OwningOpRef<ModuleOp> module = functionOfRegion(region, values);
    if (!module)
      return false;
    func::FuncOp function = functionOf(*module);
    FailureOr<Domain> domain = findDomain(function);
    if (failed(domain) || (hasColumnSums && domain->columnSums.empty()))
      return false;
    FailureOr<Kernel> kernel = emit(function, *domain);
    if (failed(kernel))
      return false;
    region.extent = kernel->extent;
    region.symbol = addSource(*kernel->module);
    block.regions.push_back(region);
    overwrites[region.first] = {std::move(values), std::move(kernel->mayOverwrite)};
    return true;
  }

  /// Returns the function's name; equal functions share one.
  std::string addSource(ModuleOp module) {
    std::string symbol = symbolOf(module);
    if (symbols.insert(symbol).second) {
      nameFunctions(module, symbol);
      std::string text;
      llvm::raw_string_ostream stream(text);
      module.print(stream);
      made.sources.push_back({symbol, text});
    }
    return symbol;
  }

  program::Block &block;
  ArrayRef<Operation *> ops;
  const EmitFn &emit;
  RegionKernels &made;
  std::map<int, Overwrites> &overwrites; // by the region's first instruction
  std::set<std::string> &symbols;
  const Joins joins;
  std::map<ValueId, Value> valueOf;
};

} // namespace

RegionKernels formRegions(program::Program &program, const EmittedOps &origins, const EmitFn &emit,
                          Joins joins) {
  RegionKernels made;
  std::set<std::string> symbols;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    program::Stage &stage = program.stages[s];
    for (program::BlockId id : stage.blocks())
      RegionFormer(stage.block(id), origins[s].at(id), emit, made, made.overwrites[{int(s), id}],
                   symbols, joins)
          .run();
  }
  return made;
}

bool RegionKernels::mayOverwrite(const program::Program &program, int stage, program::BlockId id,
                                 int at, ValueId result, ValueId operand) const {
  auto block = overwrites.find({stage, id});
  if (block == overwrites.end())
    return true;
  int first = program::regionSpans(program.stages[size_t(stage)].block(id))[size_t(at)].first;
  auto found = block->second.find(first);
  if (found == block->second.end())
    return true; // executed instruction by instruction
  auto indexOf = [](const std::vector<ValueId> &list, ValueId value) {
    return size_t(std::find(list.begin(), list.end(), value) - list.begin());
  };
  const Overwrites &kernel = found->second;
  return kernel.mayOverwrite[indexOf(kernel.values.results, result)]
                            [indexOf(kernel.values.operands, operand)];
}

} // namespace tbc::region

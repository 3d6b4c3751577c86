//===- JoinKernels.cpp - One launch for several kernels of a block ----------===//

#include "codegen/cuda/JoinKernels.h"

#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/ops/Elements.h"
#include "planner/reshard/Launches.h"
#include "runtime/abi/CudaKernels.h"
#include "runtime/abi/Sha256.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace mlir;

namespace tbc::cuda {

using program::Block;
using program::BlockId;
using program::Region;
using program::ValueId;

namespace {

constexpr unsigned constantMemorySpace = 4; // of NVPTX
/// Threads of a segment, so that the blocks of all segments of a launch have numbers of 32 bits.
constexpr int64_t mostThreads = int64_t(1) << 30;
static_assert(reshard::maxLaunchTensors == program::maxArrayAddresses);

struct Segment {
  int code = 0;                   // number of its code
  int64_t threads = 0;            // with an element, or several
  SmallVector<int16_t> addresses; // of its buffers: numbers of the kernel's
};

/// The tables of a joint kernel, as it has them in memory.
struct Tables {
  SmallVector<int32_t> firstBlocks; // by segment; filled up to a power of two
  SmallVector<int32_t> threads;     // by segment
  SmallVector<int16_t> rows;        // by segment: its code, then its addresses
  int64_t rowLength = 1;
  int64_t numBlocks = 0;

  explicit Tables(ArrayRef<Segment> segments) {
    for (const Segment &segment : segments)
      rowLength = std::max(rowLength, int64_t(segment.addresses.size()) + 1);
    for (const Segment &segment : segments) {
      firstBlocks.push_back(int32_t(numBlocks));
      threads.push_back(int32_t(segment.threads));
      numBlocks += blocksOf(segment.threads);
      SmallVector<int16_t> row = {int16_t(segment.code)};
      row.append(segment.addresses);
      row.resize(size_t(rowLength));
      rows.append(row);
    }
    firstBlocks.resize(llvm::PowerOf2Ceil(segments.size()), std::numeric_limits<int32_t>::max());
  }

  static int64_t blocksOf(int64_t threads) {
    return int64_t(llvm::divideCeil(uint64_t(threads), uint64_t(threadsPerBlock)));
  }
  std::string text() const {
    std::string text;
    llvm::raw_string_ostream stream(text);
    llvm::interleaveComma(firstBlocks, stream);
    llvm::interleaveComma(threads, stream << ';');
    llvm::interleaveComma(rows, stream << ';');
    return text;
  }
};

/// Emits a joint kernel.
class JointEmitter {
public:
  JointEmitter(MLIRContext &context, const Tables &tables, ArrayRef<const region::Kernel *> codes,
               Form form)
      : tables(tables), codes(codes), form(form), builder(&context), loc(builder.getUnknownLoc()),
        e{builder, loc}, pointer(LLVM::LLVMPointerType::get(&context)) {}

  region::Kernel emit(int numAddresses) {
    region::Kernel kernel;
    kernel.module = ModuleOp::create(loc);
    int64_t numThreads = tables.numBlocks * threadsPerBlock;
    kernel.extent = form == Form::Device ? tables.numBlocks : numThreads;
    builder.setInsertionPointToEnd(kernel.module->getBody());
    addTables();
    KernelFrame frame = openArrayKernel(builder, loc, numAddresses, numThreads, form);
    array = frame.buffers[0];
    Value block = e.make<arith::DivUIOp>(frame.thread, integer(threadsPerBlock));
    Value segment = segmentOf(block);
    Value first =
        e.mul(load(firstBlocksName, builder.getI32Type(), segment), integer(threadsPerBlock));
    Value thread = e.sub(frame.thread, first);
    Value isThere = e.less(thread, load(threadsName, builder.getI32Type(), segment));
    emitIf(isThere, [&] { emitCodes(e.mul(segment, integer(tables.rowLength)), thread); });
    return kernel;
  }

private:
  Value integer(int64_t value) { return builder.create<arith::ConstantIntOp>(loc, value, 64); }

  void addTables() {
    std::string name = "tbc_tables_" + sha256Hex(tables.text()).substr(0, 24);
    firstBlocksName = name + "_blocks", threadsName = name + "_threads", rowsName = name + "_rows";
    addTable(firstBlocksName, builder.getI32Type(), ArrayRef(tables.firstBlocks));
    addTable(threadsName, builder.getI32Type(), ArrayRef(tables.threads));
    addTable(rowsName, builder.getI16Type(), ArrayRef(tables.rows));
  }
  template <typename T> void addTable(const std::string &name, Type element, ArrayRef<T> values) {
    auto attr =
        DenseElementsAttr::get(RankedTensorType::get({int64_t(values.size())}, element), values);
    builder.create<LLVM::GlobalOp>(loc, LLVM::LLVMArrayType::get(element, unsigned(values.size())),
                                   /*isConstant=*/true, LLVM::Linkage::Internal, name, attr,
                                   /*alignment=*/sizeof(T), memorySpace());
  }
  unsigned memorySpace() const { return form == Form::Device ? constantMemorySpace : 0; }

  /// Loads an entry of a table, as i64. Entries are not negative.
  Value load(const std::string &table, Type element, Value index) {
    Type type = LLVM::LLVMPointerType::get(builder.getContext(), memorySpace());
    Value base = builder.create<LLVM::AddressOfOp>(loc, type, table);
    Value at = builder.create<LLVM::GEPOp>(loc, type, element, base, ArrayRef<LLVM::GEPArg>{index},
                                           /*inbounds=*/true);
    return e.make<arith::ExtUIOp>(builder.getI64Type(),
                                  Value(builder.create<LLVM::LoadOp>(loc, element, at)));
  }

  /// Returns the last segment that begins at `block` or before.
  Value segmentOf(Value block) {
    Value segment = integer(0);
    for (int64_t step = int64_t(tables.firstBlocks.size()) / 2; step > 0; step /= 2) {
      Value later = e.add(segment, integer(step));
      Value isBefore = e.less(block, load(firstBlocksName, builder.getI32Type(), later));
      segment = e.select(isBefore, segment, later);
    }
    return segment;
  }

  void emitIf(Value condition, llvm::function_ref<void()> body) {
    OpBuilder::InsertionGuard guard(builder);
    auto branch = builder.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    body();
  }

  /// Emits the code of each kind of segment, of which a block executes one. `row`: where the row of
  /// the segment begins.
  void emitCodes(Value row, Value thread) {
    Value code = load(rowsName, builder.getI16Type(), row);
    for (size_t number = 0; number < codes.size(); ++number) {
      auto emitThis = [&] { emitCode(*codes[number], row, thread); };
      if (codes.size() == 1)
        emitThis();
      else
        emitIf(e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, code, integer(int64_t(number))),
               emitThis);
    }
  }

  void emitCode(const region::Kernel &code, Value row, Value thread) {
    func::FuncOp function = *code.module.get().getOps<func::FuncOp>().begin();
    IRMapping mapping;
    mapping.map(function.getArgument(0), thread);
    for (BlockArgument buffer : function.getArguments().drop_front()) {
      Value entry = e.add(row, integer(buffer.getArgNumber())); // behind the code's number
      Value number = load(rowsName, builder.getI16Type(), entry);
      Value at = builder.create<LLVM::GEPOp>(loc, pointer, pointer, array,
                                             ArrayRef<LLVM::GEPArg>{number}, /*inbounds=*/true);
      mapping.map(buffer, builder.create<LLVM::LoadOp>(loc, pointer, at).getResult());
    }
    for (Operation &op : function.getBody().front().without_terminator())
      builder.clone(op, mapping);
  }

  const Tables &tables;
  ArrayRef<const region::Kernel *> codes;
  const Form form;
  OpBuilder builder;
  Location loc;
  region::Elements e;
  Type pointer;
  Value array; // of addresses
  std::string firstBlocksName, threadsName, rowsName;
};

/// Joins the regions of one block.
class BlockJoiner {
public:
  BlockJoiner(const program::Stage &stage, Block &block,
              std::map<int, region::Overwrites> &overwrites, const ThreadCode &threads,
              MLIRContext &context, Form form, int64_t &tableBytes,
              std::vector<region::KernelSource> &sources)
      : block(block), overwrites(overwrites), threads(threads), context(context), form(form),
        tableBytes(tableBytes), sources(sources) {
    for (const program::BlockResult &result : block.results)
      if (!result.accumulate && stage.slots[size_t(result.slot)].role != program::Role::Loss)
        isResult.insert(result.value);
    for (int i = 0; i < int(block.instructions.size()); ++i) {
      const program::Instruction &instruction = block.instructions[size_t(i)];
      bool isView = instruction.op == "reshape" && ofMatmul.count(instruction.operands[0]) > 0;
      for (ValueId value : instruction.operands)
        lastReader[value] = i;
      for (ValueId value : instruction.results) {
        if (instruction.op == program::matmulOp || isView)
          ofMatmul.insert(value);
        if (isCommunication(instruction.kind))
          receivedBy[value] = i;
      }
    }
  }

  void run() {
    std::vector<Region> regions = std::move(block.regions);
    block.regions.clear();
    std::vector<reshard::LaunchedKernel> kernels;
    for (size_t i = 0; i < regions.size(); ++i)
      kernels.push_back(describe(regions[i], i > 0 && isNextTo(regions[i - 1], regions[i])));
    auto next = regions.begin();
    for (int count : reshard::joinLaunches(kernels, tableBytes)) {
      if (count > 1)
        join(ArrayRef(&*next, size_t(count)));
      else
        block.regions.push_back(*next);
      next += count;
    }
  }

private:
  static bool isNextTo(const Region &before, const Region &region) {
    return before.first + before.count == region.first;
  }

  const program::RegionValues &valuesOf(const Region &region) const {
    return overwrites.at(region.first).values;
  }

  reshard::LaunchedKernel describe(const Region &region, bool isBehindPrevious) const {
    reshard::LaunchedKernel kernel;
    kernel.isBehindPrevious = isBehindPrevious;
    auto thread = threads.find(region.symbol);
    if (thread == threads.end() || thread->second.extent > mostThreads)
      return kernel;
    const program::RegionValues &values = valuesOf(region);
    auto isLast = [&](ValueId value) {
      auto reader = lastReader.find(value);
      return isResult.count(value) > 0 &&
             (reader == lastReader.end() || reader->second < region.first + region.count);
    };
    auto isOfMatmul = [&](ValueId value) { return ofMatmul.count(value) > 0; };
    kernel.mayJoin =
        llvm::all_of(values.results, isLast) && llvm::none_of(values.operands, isOfMatmul);
    std::set<int> waits;
    for (ValueId value : values.operands)
      if (auto message = receivedBy.find(value); message != receivedBy.end())
        waits.insert(message->second);
    kernel.messages.assign(waits.begin(), waits.end());
    kernel.tensors.assign(values.operands.begin(), values.operands.end());
    kernel.tensors.insert(kernel.tensors.end(), values.results.begin(), values.results.end());
    kernel.code = region::symbolOf(*thread->second.module);
    return kernel;
  }

  /// Replaces the regions of a group by one.
  void join(ArrayRef<Region> group) {
    int end = group.back().first + group.back().count;
    Region joint{group.front().first, end - group.front().first, "", 1};
    region::Overwrites whole;
    whole.values = regionValues(block, joint);
    std::map<ValueId, int> operands, results;
    for (auto [number, value] : llvm::enumerate(whole.values.operands))
      operands[value] = int(number);
    for (auto [number, value] : llvm::enumerate(whole.values.results))
      results[value] = int(number);

    std::map<std::string, int> numbers; // of codes
    SmallVector<const region::Kernel *> code;
    SmallVector<Segment> segments;
    for (const Region &region : group) {
      const region::Kernel &thread = threads.at(region.symbol);
      auto [number, isNew] = numbers.try_emplace(region::symbolOf(*thread.module), code.size());
      if (isNew)
        code.push_back(&thread);
      Segment &segment = segments.emplace_back();
      segment.code = number->second, segment.threads = thread.extent;
      for (ValueId value : valuesOf(region).operands)
        segment.addresses.push_back(int16_t(operands.at(value)));
      for (ValueId value : valuesOf(region).results)
        segment.addresses.push_back(int16_t(int(operands.size()) + results.at(value)));
    }
    Tables tables(segments);
    region::Kernel kernel =
        JointEmitter(context, tables, code, form).emit(int(operands.size() + results.size()));
    joint.symbol = region::symbolOf(*kernel.module), joint.extent = kernel.extent;
    region::nameFunctions(*kernel.module, joint.symbol);
    std::string text;
    llvm::raw_string_ostream(text) << *kernel.module;
    sources.push_back({joint.symbol, text});
    whole.mayOverwrite = mayOverwrite(group, whole.values, operands, results);
    for (const Region &region : group)
      overwrites.erase(region.first);
    overwrites[joint.first] = std::move(whole);
    block.regions.push_back(joint);
  }

  /// A result may lie over an operand as within its own region, if that region alone reads it.
  std::vector<std::vector<bool>> mayOverwrite(ArrayRef<Region> group,
                                              const program::RegionValues &whole,
                                              const std::map<ValueId, int> &operands,
                                              const std::map<ValueId, int> &results) const {
    std::map<ValueId, int> readers;
    for (const Region &region : group)
      for (ValueId value : valuesOf(region).operands)
        ++readers[value];
    std::vector<std::vector<bool>> answer(whole.results.size(),
                                          std::vector<bool>(whole.operands.size(), false));
    for (const Region &region : group) {
      const region::Overwrites &own = overwrites.at(region.first);
      for (auto [r, result] : llvm::enumerate(own.values.results))
        for (auto [o, operand] : llvm::enumerate(own.values.operands))
          answer[size_t(results.at(result))][size_t(operands.at(operand))] =
              own.mayOverwrite[r][o] && readers.at(operand) == 1;
    }
    return answer;
  }

  Block &block;
  std::map<int, region::Overwrites> &overwrites; // by the region's first instruction
  const ThreadCode &threads;
  MLIRContext &context;
  const Form form;
  int64_t &tableBytes; // of all joint kernels
  std::vector<region::KernelSource> &sources;
  std::set<ValueId> isResult, ofMatmul; // of the block; of its matmuls, maybe in another shape
  std::map<ValueId, int> receivedBy;    // the message with a value
  std::map<ValueId, int> lastReader;    // the last instruction that reads a value
};

} // namespace

void joinKernels(program::Program &program, region::RegionKernels &kernels,
                 const ThreadCode &threads, MLIRContext &context, Form form) {
  int64_t tableBytes = 0;
  std::vector<region::KernelSource> joint;
  for (int stage = 0; stage < program.numStages(); ++stage)
    for (BlockId id : program.stages[size_t(stage)].blocks())
      BlockJoiner(program.stages[size_t(stage)], program.stages[size_t(stage)].block(id),
                  kernels.overwrites[{stage, id}], threads, context, form, tableBytes, joint)
          .run();
  // Kernels that are parts of joint ones alone are not compiled; equal joint kernels are one.
  std::set<std::string> used;
  for (const program::Stage &stage : program.stages)
    for (BlockId id : stage.blocks())
      for (const Region &region : stage.block(id).regions)
        used.insert(region.symbol);
  for (region::KernelSource &source : joint)
    kernels.sources.push_back(std::move(source));
  llvm::erase_if(kernels.sources, [&](const region::KernelSource &source) {
    return used.erase(source.symbol) == 0;
  });
}

} // namespace tbc::cuda

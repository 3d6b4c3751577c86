//===- EmitColumnSums.cpp - Kernels of rows that also have column sums ------===//

#include "codegen/cuda/BlockShare.h"
#include "codegen/cuda/ExpandMath.h"
#include "codegen/cuda/NestEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

#include <optional>

using namespace mlir;

namespace tbc::cuda {

using region::Domain;
using region::MemoryAccess;

namespace {

// All are functions of the shapes, so the order of a sum is the same on every device.
/// Threads of all blocks together, at most. Example: 256 blocks of 128 threads that load 128 bytes
/// each have 4 MB in flight, and an H100 needs 0.7 (tests/gate/Gate.h). More blocks write more
/// partial sums.
constexpr int64_t aimedThreads = 1 << 15;
constexpr int64_t mostBlocks = 1024;
/// Threads of a row. 512 threads may have 128 registers each.
constexpr int64_t mostThreadsOfRow = 512;
/// f32 that a thread holds: a sum per column, and the elements of the rows that it reads.
constexpr int64_t mostFloats = 128;
/// Blocks whose partial sums are added together first.
constexpr int64_t groupBlocks = 16;
/// Partial sums that a thread loads before it adds them.
constexpr int64_t partialsAtOnce = 8;
constexpr int64_t partialsAlignment = 64; // floats

/// A block takes rows, one after the other. Its threads hold the elements of a row, and a sum for
/// each of their columns, in registers:
///   1. A thread loads its elements of the row.
///   2. The block reduces the row: by shuffles within a warp, and over warps in shared memory.
///   3. A thread adds its elements to the sums of its columns, and writes the row's results.
///
/// At its end a block writes its sums to the workspace. The last block of a group of neighbours to
/// end (`BlockShare::isLastOf`) adds those of the group in order, and the last of all groups adds
/// the sums of groups. It does what follows from them, and writes.
///
/// Source: the backward of layer norm in Apex (contrib/csrc/layer_norm/ln_bwd_kernels.cuh) has the
/// same loop over rows; there a second launch adds the sums of blocks.
///
/// Example: 8,192 rows of 2,048 bf16, four of which are read, have 128 threads of 16 columns each.
/// 256 blocks take 32 rows each, in 16 groups.
class ColumnSumEmitter final : public NestEmitter {
public:
  ColumnSumEmitter(func::FuncOp function, const Domain &domain)
      : NestEmitter(function, domain, Form::Device) {
    chooseWidthOfRows();
    chooseThreads();
    isInParts = true;
    blockThreads = int(threadsOfRow);
  }

  bool isPossible() const { return threadsOfRow > 0; }

protected:
  region::Kernel emit() override;

private:
  /// What a thread has of each of its accesses to a row, or of each access and column sum.
  using Accesses = SmallVector<Values>;
  using Sums = std::vector<SmallVector<Value>>; // by access, then by column sum

  void chooseWidthOfRows();
  void chooseThreads();
  bool isOfColumns(Value value) const { return domain.ready.lookup(value) < 0; }
  Value workspace() { return buffers.back(); }
  MemoryAccess floats(int count) {
    return MemoryAccess(builder, loc, builder.getF32Type(), unsigned(count * sizeof(float)));
  }
  void onlyIf(Value condition, llvm::function_ref<void()> body);

  /// Moves to an access of this thread; its columns are from `position` on.
  void setAccess(int64_t access);
  /// Whether the thread has this access; null if all threads have.
  Value isThere(int64_t access);
  /// Does `body` for each access, with the values that are known of it.
  void forEachAccess(Accesses &known, llvm::function_ref<void(int64_t access)> body);

  /// Takes one row. `buffer`: 0 or 1, the half of the shared memory that its first reduction uses.
  /// Returns the sums with this row.
  Sums takeRow(Value buffer, const Sums &before);
  void reduceRow(const Domain::Pass &work, Accesses &known, Value buffer);
  void storeRow(int64_t access);

  /// Writes the sums of this block, and those of all blocks if it is the last.
  void finish(const Sums &sums);
  void storePartials(const Sums &sums, Value line);
  /// Combines `count` lines of partial sums from `first` on.
  Sums addLines(Value first, int64_t count);
  void storeTotals(const Sums &totals);
  /// The offset of column sum `number` in line `line` of the workspace, at the current columns.
  Value partialOffset(Value line, size_t number) {
    Value sumsBefore =
        e.add(e.mul(line, integer(int64_t(domain.columnSums.size()))), integer(int64_t(number)));
    return e.add(e.mul(sumsBefore, integer(columnStride)), position);
  }

  SmallVector<Value> flat(const Sums &sums, Value buffer) const;
  Sums nested(ArrayRef<Value> list) const;

  int64_t numRows = 1, threadsOfRow = 0, accessesOfRow = 1, accessesOfThread = 1;
  int64_t numBlocks = 1, numGroups = 1, columnStride = 0;
  int64_t numReductions = 0; // of rows: passes with a reduction
  Value inBlock, block;
  std::optional<BlockShare> share;
};

} // namespace

void ColumnSumEmitter::chooseWidthOfRows() {
  int64_t widest = 1;
  for (Value value : returned())
    if (domain.hasVector(value) && !isOfColumns(value))
      widest = std::max<int64_t>(widest, bytesOfElement(value));
  for (BlockArgument argument : function.getArguments())
    if (domain.hasVector(argument))
      widest = std::max<int64_t>(widest, bytesOfElement(argument));
  width = int(accessBytes / widest);
  while (vectorSize % width != 0)
    width /= 2;
}

void ColumnSumEmitter::chooseThreads() {
  numRows = domain.product(domain.rows);
  accessesOfRow = vectorSize / width;
  int64_t held = int64_t(domain.columnSums.size());
  for (BlockArgument argument : function.getArguments())
    held += domain.hasVector(argument) && domain.loops.lookup(argument).size() > 1 ? 1 : 0;
  auto accesses = [&](int64_t threads) {
    return int64_t(llvm::divideCeil(uint64_t(accessesOfRow), uint64_t(threads)));
  };
  int64_t reductions = 0; // of a pass; each has a float of a warp in both halves of the memory
  for (int p = 0; p < domain.numPasses; ++p)
    reductions = std::max(reductions, int64_t(domain.passOf(function, p).reductions.size()));
  auto fits = [&](int64_t threads) {
    return accesses(threads) * width * held <= mostFloats &&
           2 * (threads / warpThreads) * reductions <= BlockShare::numFloats;
  };
  // All threads have an element in every access, if there is such a number of threads.
  for (bool isExact : {true, false})
    for (int64_t threads = warpThreads; threadsOfRow == 0 && threads <= mostThreadsOfRow;
         threads += warpThreads)
      if (fits(threads) && (!isExact || accessesOfRow % threads == 0))
        threadsOfRow = threads;
  if (threadsOfRow == 0)
    return;
  accessesOfThread = accesses(threadsOfRow);
  numBlocks = std::min({aimedThreads / threadsOfRow, numRows, mostBlocks});
  numBlocks = int64_t(llvm::bit_floor(uint64_t(numBlocks)));
  numGroups = std::max<int64_t>(1, numBlocks / groupBlocks);
  columnStride = int64_t(llvm::alignTo(uint64_t(vectorSize), uint64_t(partialsAlignment)));
}

void ColumnSumEmitter::onlyIf(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  OpBuilder::InsertionGuard guard(builder);
  auto branch = builder.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
  builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

SmallVector<Value> ColumnSumEmitter::flat(const Sums &sums, Value buffer) const {
  SmallVector<Value> list;
  for (ArrayRef<Value> ofAccess : sums)
    list.append(ofAccess.begin(), ofAccess.end());
  if (buffer)
    list.push_back(buffer);
  return list;
}

ColumnSumEmitter::Sums ColumnSumEmitter::nested(ArrayRef<Value> list) const {
  Sums sums;
  for (int64_t access = 0; access < accessesOfThread; ++access) {
    sums.emplace_back(list.take_front(domain.columnSums.size()));
    list = list.drop_front(domain.columnSums.size());
  }
  return sums;
}

region::Kernel ColumnSumEmitter::emit() {
  region::Kernel kernel = open(numBlocks * threadsOfRow);
  inBlock = e.make<arith::RemUIOp>(thread, integer(threadsOfRow));
  block = e.make<arith::DivUIOp>(thread, integer(threadsOfRow));
  lane = e.make<arith::RemUIOp>(inBlock, integer(warp));
  share.emplace(*kernel.module, builder, loc, inBlock);
  for (int p = 0; p < domain.numPasses; ++p)
    numReductions += domain.passOf(function, p).reductions.empty() ? 0 : 1;

  Domain::Pass columns;
  columns.reductions = domain.columnSums;
  Sums sums(size_t(accessesOfThread), identities(columns));
  SmallVector<Value> carried = emitLoop(block, integer(numRows), numBlocks, flat(sums, integer(0)),
                                        [&](Value index, ArrayRef<Value> inner) {
                                          row = index;
                                          splitIndex(domain.rows, row);
                                          Value buffer = inner.back();
                                          Sums next = takeRow(buffer, nested(inner));
                                          // A thread may still read the half that the last
                                          // reduction used.
                                          if (numReductions % 2 == 1)
                                            buffer = e.sub(integer(1), buffer);
                                          return flat(next, buffer);
                                        });
  finish(nested(carried));
  expandMath(*kernel.module);
  int64_t lines = numBlocks + (numGroups > 1 ? numGroups : 0);
  kernel.workspaceBytes =
      lines * int64_t(domain.columnSums.size()) * columnStride * int64_t(sizeof(float));
  return kernel;
}

void ColumnSumEmitter::setAccess(int64_t access) {
  Value number = e.add(inBlock, integer(access * threadsOfRow));
  // A thread without this access has the first elements, and writes no result.
  if (Value isOwn = isThere(access))
    number = e.select(isOwn, number, integer(0));
  position = e.mul(number, integer(width));
}

Value ColumnSumEmitter::isThere(int64_t access) {
  if ((access + 1) * threadsOfRow <= accessesOfRow)
    return {};
  return e.less(e.add(inBlock, integer(access * threadsOfRow)), integer(accessesOfRow));
}

void ColumnSumEmitter::forEachAccess(Accesses &known,
                                     llvm::function_ref<void(int64_t access)> body) {
  for (int64_t access = 0; access < accessesOfThread; ++access) {
    setAccess(access);
    std::swap(values, known[size_t(access)]);
    body(access);
    std::swap(values, known[size_t(access)]);
  }
}

ColumnSumEmitter::Sums ColumnSumEmitter::takeRow(Value buffer, const Sums &before) {
  sums.clear(), constants.clear(), values.clear();
  Accesses known;
  known.resize(size_t(accessesOfThread));
  forEachAccess(known, [&](int64_t) {
    for (BlockArgument argument : function.getArguments())
      if (domain.hasVector(argument))
        values[argument] = load(argument);
  });
  for (BlockArgument argument : function.getArguments())
    if (!domain.hasVector(argument))
      constants[argument] = load(argument);
  for (int p = 0; p < domain.numPasses; ++p)
    if (Domain::Pass work = domain.passOf(function, p); !work.reductions.empty()) {
      reduceRow(work, known, buffer);
      buffer = e.sub(integer(1), buffer);
    }
  Sums after = before;
  forEachAccess(known, [&](int64_t access) {
    for (auto [sum, reduction] : llvm::zip_equal(after[size_t(access)], domain.columnSums)) {
      Value element = evaluate(reduction->getOperand(0));
      if (isa<VectorType>(sum.getType()))
        element = splat(element);
      sum = combine(reduction, sum, element);
    }
    storeRow(access);
  });
  return after;
}

void ColumnSumEmitter::reduceRow(const Domain::Pass &work, Accesses &known, Value buffer) {
  SmallVector<Value> totals = identities(work);
  forEachAccess(known, [&](int64_t access) {
    Value isOwn = isThere(access);
    for (auto [total, reduction] : llvm::zip_equal(totals, work.reductions)) {
      Value element = evaluate(reduction->getOperand(0));
      if (isa<VectorType>(total.getType()))
        element = splat(element);
      if (isOwn)
        element = e.select(isOwn, element, e.number(element, identityOf(reduction)));
      total = combine(reduction, total, element);
    }
  });
  for (auto [total, reduction] : llvm::zip_equal(totals, work.reductions))
    total = combineOverWarp(builder, loc, overLanes(reduction, total), isSum(reduction), form);
  int64_t warps = threadsOfRow / warp, count = int64_t(totals.size());
  Value half = e.mul(buffer, integer(warps * count));
  totals = share->overWarps(totals, lane, warps, half, [&](size_t number, Value x, Value y) {
    return combine(work.reductions[number], x, y);
  });
  for (auto [reduction, total] : llvm::zip_equal(work.reductions, totals))
    sums[reduction->getResult(0)] = total;
}

void ColumnSumEmitter::storeRow(int64_t access) {
  SmallVector<int> whole;
  for (int p = 0; p <= domain.numPasses; ++p)
    llvm::append_range(whole, domain.passOf(function, p).results);
  // Outside of the branch, so that values are known behind it, too.
  for (int result : whole)
    evaluate(returned()[result]);
  onlyIf(isThere(access), [&] { store(whole); });
  SmallVector<int> ofRow = domain.resultsBehindPasses(function);
  if (access > 0 || ofRow.empty())
    return;
  onlyIf(e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, inBlock, integer(0)),
         [&] { store(ofRow); });
  // Other threads of the block read the row's operands at any time.
  for (int result : ofRow)
    written[result] = -1;
}

void ColumnSumEmitter::finish(const Sums &sums) {
  if (numBlocks == 1)
    return storeTotals(sums);
  storePartials(sums, block);
  int64_t ofGroup = numBlocks / numGroups;
  Value group = e.make<arith::DivUIOp>(block, integer(ofGroup));
  onlyIf(share->isLastOf(group, numGroups, ofGroup), [&] {
    Sums ofBlocks = addLines(e.mul(group, integer(ofGroup)), ofGroup);
    if (numGroups == 1)
      return storeTotals(ofBlocks);
    storePartials(ofBlocks, e.add(group, integer(numBlocks)));
    onlyIf(share->isLastOf(integer(0), 1, numGroups),
           [&] { storeTotals(addLines(integer(numBlocks), numGroups)); });
  });
}

void ColumnSumEmitter::storePartials(const Sums &sums, Value line) {
  for (int64_t access = 0; access < accessesOfThread; ++access) {
    setAccess(access);
    onlyIf(isThere(access), [&] {
      for (auto [number, sum] : llvm::enumerate(sums[size_t(access)]))
        floats(width).store(sum, workspace(), partialOffset(line, number), width);
    });
  }
}

ColumnSumEmitter::Sums ColumnSumEmitter::addLines(Value first, int64_t count) {
  Domain::Pass columns;
  columns.reductions = domain.columnSums;
  Sums totals(size_t(accessesOfThread), identities(columns));
  int64_t together = std::min(count, partialsAtOnce); // both are powers of two
  auto addSome = [&](Value line, ArrayRef<Value> inner) {
    Sums next = nested(inner);
    for (int64_t access = 0; access < accessesOfThread; ++access) {
      setAccess(access);
      for (auto [number, reduction] : llvm::enumerate(domain.columnSums)) {
        SmallVector<Value> loaded;
        for (int64_t i = 0; i < together; ++i)
          loaded.push_back(floats(width).load(workspace(),
                                              partialOffset(e.add(line, integer(i)), number),
                                              width > 1 ? width : 0, width));
        Value &sum = next[size_t(access)][number];
        for (Value partial : loaded)
          sum = combine(reduction, sum, partial);
      }
    }
    return flat(next, {});
  };
  return nested(emitLoop(first, e.add(first, integer(count)), together, flat(totals, {}), addSome));
}

void ColumnSumEmitter::storeTotals(const Sums &totals) {
  pass = 1;
  for (int64_t access = 0; access < accessesOfThread; ++access) {
    setAccess(access);
    sums.clear(), values.clear(), constants.clear();
    for (auto [total, reduction] : llvm::zip_equal(totals[size_t(access)], domain.columnSums))
      sums[reduction->getResult(0)] = total;
    onlyIf(isThere(access), [&] { store(domain.resultsBehindColumns(function)); });
  }
  values.clear();
}

FailureOr<region::Kernel> emitColumnSums(func::FuncOp function, const Domain &domain) {
  ColumnSumEmitter emitter(function, domain);
  if (!emitter.isPossible())
    return failure();
  return emitter.run();
}

} // namespace tbc::cuda

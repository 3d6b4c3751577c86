//===- EmitInParts.cpp - Kernels whose reductions are in parts --------------===//

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

// A kernel with reduced loops takes parts of these if it has few threads. All are functions of the
// shapes, so the order of a sum is the same on every device.
/// Threads in all parts together. Example: 16 bytes each in four loads are 2 MB in flight, and an
/// H100 needs 0.7 (tests/gate/Gate.h).
constexpr int64_t aimedThreads = 1 << 15;
/// So many threads need no parts. Whole rows have one load at a time in flight: on an H200, 16,384
/// threads read 0.42 TB/s so.
constexpr int64_t threadsOfWhole = 1 << 16;
constexpr int64_t mostParts = 1024;
/// Items of a thread. Fewer are read sooner than another kernel is launched.
constexpr int64_t fewestItems = 64, fewestItemsOfPart = 4;
/// Items whose loads a thread has in flight at once.
constexpr int64_t itemsAtOnce = 4;
/// Threads of a block. If the data allow there are at least `aimedThreads`, so 256 blocks.
constexpr int partThreads = 128;
/// A block has about so many neighbouring columns, the rest of its threads are other parts of
/// these. At least 8 threads beside each other read 128 bytes together, the line of a cache.
constexpr int64_t aimedColumns = 64, fewestBeside = 8, mostBeside = 32;
/// Threads that add the partial results of one column.
constexpr int64_t mostLanes = 32;
constexpr int64_t partialsAlignment = 64; // floats

/// Launch p does pass p over the reduced loops. Blocks of a *group* have the same columns, and each
/// has a *slice* of their parts:
///   1. A thread reduces a part. The block combines its parts in shared memory and writes partial
///      results, one per column.
///   2. The last block of the group to end (`BlockShare::isLastOf`) combines the partial results
///      in the order of slices. It writes the totals for later passes, or after the last one the
///      results without reduced loops.
///
/// Example: 16,384 rows of 768 bf16 have 96 threads beside each other, 512 parts of 32 rows. A
/// block has 8 threads beside each other (64 columns) and 16 parts, so there are 12 groups of 32
/// slices. The last block of a group adds 32 sums for each of its 64 columns.
///
/// The host form has no blocks: each part is a slice, and a further launch combines these.
class PartsEmitter final : public NestEmitter {
public:
  PartsEmitter(func::FuncOp function, const Domain &domain, Form form)
      : NestEmitter(function, domain, form) {
    chooseParts();
    isInParts = numParts > 1;
    blockThreads = partThreads;
    if (isInParts)
      chooseBlocks();
  }

  bool isWorthwhile() const { return isInParts; }

protected:
  region::Kernel emit() override;

private:
  /// Chooses the number of parts of the reduced loops; see `aimedThreads`. An item is one index of
  /// the reduced loops, or one access along the vector if that is reduced too.
  void chooseParts();
  /// Chooses the units and parts of a block. A unit is a thread, or a warp if the vector is
  /// reduced.
  void chooseBlocks();
  Value workspace() { return buffers.back(); }
  MemoryAccess partialAccess(int elements) {
    return MemoryAccess(builder, loc, builder.getF32Type(), unsigned(elements * sizeof(float)));
  }
  /// The offset of a reduction's total for `column`, and of slice `slice` of reduction `number` of
  /// a pass.
  Value totalOffset(Operation *reduction, Value column) {
    int64_t number = llvm::find(reductions, reduction) - reductions.begin();
    return e.add(column, integer(number * columnStride));
  }
  Value partialOffset(size_t number, Value slice, Value column) {
    int64_t before = int64_t(reductions.size()) + int64_t(number) * numSlices;
    return e.add(e.mul(e.add(slice, integer(before)), integer(columnStride)), column);
  }
  /// Returns the column of `width` elements from `position` on.
  Value columnHere() {
    return domain.isVectorReduced ? row : e.add(e.mul(row, integer(vectorSize)), position);
  }
  bool isWideSum(Operation *reduction) {
    return width > 1 && !domain.isVectorReduced && domain.hasVector(reduction->getResult(0));
  }
  /// Loads the totals of the first `p` passes.
  void loadTotals(int p);
  void onlyIf(Value condition, llvm::function_ref<void()> body);
  Value isZero(Value index) {
    return e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, index, integer(0));
  }
  region::Kernel emitParts(int p, const Domain::Pass &work);
  /// Sets the part, the unit and the indices of this thread.
  void splitThreadOfParts();
  /// Does all items of a part: several at once, with the loads of all of them first.
  SmallVector<Value> overItems(const Domain::Pass &work);
  void setItem(Value item);
  SmallVector<Value> itemsFrom(const Domain::Pass &work, Value item, ArrayRef<Value> carried);

  // One block (device form). Results are by turn, then by reduction: a thread does one column of
  // the block in each turn.

  /// Combines the parts of this block, and those of its group if it is the last.
  void finishBlock(int p, const Domain::Pass &work, ArrayRef<Value> partials);
  std::vector<SmallVector<Value>> overParts(const Domain::Pass &work, ArrayRef<Value> partials);
  std::vector<SmallVector<Value>> overSlices(const Domain::Pass &work);
  /// Combines `lines` values of `column`, which lie in shared memory as [lines, columnsOfBlock].
  Value overLines(Operation *reduction, int64_t lines, Value column);
  /// Returns the column of this thread: in the block, in all, and whether it is there.
  Value columnInBlock(int64_t turn);
  Value columnOf(int64_t turn);
  Value isThere(int64_t turn);

  // Totals.

  Value combineAll(Operation *reduction, ArrayRef<Value> values);
  /// Combines the parts of pass `p`, a thread per column (host form).
  region::Kernel emitCombination(int p, const Domain::Pass &work);
  /// Combines the slices `first`, `first` + `step`, ... of a column. All are loaded before the
  /// first is used; those beyond the last are the identity.
  Value loadSlices(Operation *reduction, size_t number, Value column, Value first, int64_t step);
  /// Writes what follows from the totals of pass `p` for a column.
  void storeTotals(int p, const Domain::Pass &work, Value column, ArrayRef<Value> totals);

  int64_t numParts = 1, itemsPerPart = 0, numItems = 0, itemsPerIndex = 1, itemStride = 1;
  int64_t unitThreads = 1, numUnits = 1;
  int64_t unitsOfBlock = 1, partsOfBlock = 1, columnsOfBlock = 1, numTurns = 1;
  int64_t numGroups = 1, numSlices = 1;
  int64_t numColumns = 0, columnStride = 0; // of partial results: one per row and vector position
  SmallVector<Operation *> reductions;      // of all passes
  Value part, isOwnUnit;                    // of this thread; null: each thread has a unit
  Value inBlock, group, slice;              // of this thread and block (device form)
  std::optional<BlockShare> share;
};

} // namespace

region::Kernel PartsEmitter::emit() {
  columnStride = int64_t(llvm::alignTo(uint64_t(numColumns), uint64_t(partialsAlignment)));
  int64_t most = 0; // reductions of a pass
  for (int p = 0; p < domain.numPasses; ++p) {
    Domain::Pass work = domain.passOf(function, p);
    llvm::append_range(reductions, work.reductions);
    most = std::max(most, int64_t(work.reductions.size()));
  }
  SmallVector<region::Kernel> launches;
  for (int p = 0; p <= domain.numPasses; ++p) {
    Domain::Pass work = domain.passOf(function, p);
    if (!work.isEmpty())
      launches.push_back(emitParts(p, work));
    if (p < domain.numPasses && form == Form::Host)
      launches.push_back(emitCombination(p, work));
  }
  int64_t floats = (int64_t(reductions.size()) + most * numSlices) * columnStride;
  return joinLaunches(launches, floats * int64_t(sizeof(float)));
}

void PartsEmitter::chooseParts() {
  itemsPerIndex = domain.isVectorReduced ? vectorSize / width : 1;
  numItems = reducedSize * itemsPerIndex;
  itemStride = domain.isVectorReduced ? warp : 1;
  auto ceiling = [](int64_t a, int64_t b) {
    return int64_t(llvm::divideCeil(uint64_t(a), uint64_t(b)));
  };
  int64_t ofThread = ceiling(numItems, itemStride);
  // Not in parts, a warp takes one index of the reduced loops at a time.
  int64_t ofWhole = reducedSize * ceiling(itemsPerIndex, itemStride);
  if (domain.numPasses == 0 || ofWhole < fewestItems || numThreads >= threadsOfWhole)
    return;
  int64_t wanted = std::clamp<int64_t>(ceiling(aimedThreads, numThreads), 2, mostParts);
  auto each =
      int64_t(llvm::bit_floor(uint64_t(std::max(fewestItemsOfPart, ceiling(ofThread, wanted)))));
  itemsPerPart = each * itemStride;
  numParts = ceiling(numItems, itemsPerPart);
}

void PartsEmitter::chooseBlocks() {
  unitThreads = domain.isVectorReduced ? warp : 1;
  numUnits = numThreads / unitThreads;
  int64_t columnsOfUnit = domain.isVectorReduced ? 1 : width;
  numColumns = numUnits * columnsOfUnit;
  numSlices = numParts;
  if (form == Form::Host)
    return;
  auto above = [](int64_t x) { return int64_t(llvm::bit_ceil(uint64_t(x))); };
  int64_t inBlock = partThreads / unitThreads;
  int64_t beside =
      domain.isVectorReduced
          ? 1
          : std::min(above(numUnits), std::clamp(aimedColumns / width, fewestBeside, mostBeside));
  partsOfBlock = std::min(inBlock / beside, above(numParts));
  unitsOfBlock = inBlock / partsOfBlock;
  columnsOfBlock = unitsOfBlock * columnsOfUnit;
  numTurns = std::max<int64_t>(1, columnsOfBlock / partThreads);
  numSlices = int64_t(llvm::divideCeil(uint64_t(numParts), uint64_t(partsOfBlock)));
  numGroups = int64_t(llvm::divideCeil(uint64_t(numUnits), uint64_t(unitsOfBlock)));
}

void PartsEmitter::loadTotals(int p) {
  for (Operation *reduction : reductions)
    if (Value result = reduction->getResult(0); domain.ready.lookup(result) <= p)
      sums[result] = partialAccess(isWideSum(reduction) ? width : 1)
                         .load(workspace(), totalOffset(reduction, columnHere()),
                               isWideSum(reduction) ? width : 0, width);
}

void PartsEmitter::onlyIf(Value condition, llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(builder);
  auto branch = builder.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
  builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

region::Kernel PartsEmitter::emitParts(int p, const Domain::Pass &work) {
  bool isBlockwise = form == Form::Device;
  region::Kernel launch =
      open(isBlockwise ? numGroups * numSlices * partThreads : numThreads * numParts);
  pass = 2 * p;
  splitThreadOfParts();
  loadTotals(p);
  for (BlockArgument argument : function.getArguments())
    if (!domain.hasReduced(argument))
      constants[argument] = load(argument);
  SmallVector<Value> partials = overItems(work);
  if (domain.isVectorReduced)
    for (auto [reduction, partial] : llvm::zip_equal(work.reductions, partials))
      partial =
          combineOverWarp(builder, loc, overLanes(reduction, partial), isSum(reduction), form);
  else if (width > 1)
    for (Value &partial : partials)
      partial = splat(partial);
  if (!isBlockwise) {
    for (auto [number, partial] : llvm::enumerate(partials))
      partialAccess(domain.isVectorReduced ? 1 : width)
          .store(partial, workspace(), partialOffset(number, part, columnHere()), width);
  } else if (!work.reductions.empty()) {
    share.emplace(*launch.module, builder, loc, inBlock);
    finishBlock(p, work, partials);
  }
  expandMath(*launch.module);
  return launch;
}

void PartsEmitter::splitThreadOfParts() {
  if (form == Form::Host) {
    part = e.make<arith::DivUIOp>(thread, integer(numThreads));
    return splitThread(e.make<arith::RemUIOp>(thread, integer(numThreads)));
  }
  inBlock = e.make<arith::RemUIOp>(thread, integer(partThreads));
  Value block = e.make<arith::DivUIOp>(thread, integer(partThreads));
  group = e.make<arith::RemUIOp>(block, integer(numGroups));
  slice = e.make<arith::DivUIOp>(block, integer(numGroups));
  Value line = e.make<arith::DivUIOp>(inBlock, integer(unitThreads * unitsOfBlock));
  part = e.add(e.mul(slice, integer(partsOfBlock)), line);
  Value inGroup = e.make<arith::DivUIOp>(inBlock, integer(unitThreads));
  Value unit = e.add(e.mul(group, integer(unitsOfBlock)),
                     Value(e.make<arith::RemUIOp>(inGroup, integer(unitsOfBlock))));
  isOwnUnit = {};
  if (numUnits % unitsOfBlock != 0) {
    isOwnUnit = e.less(unit, integer(numUnits));
    unit = e.select(isOwnUnit, unit, integer(numUnits - 1));
  }
  splitThread(e.add(e.mul(unit, integer(unitThreads)),
                    Value(e.make<arith::RemUIOp>(inBlock, integer(unitThreads)))));
}

SmallVector<Value> PartsEmitter::overItems(const Domain::Pass &work) {
  Value begin = e.mul(part, integer(itemsPerPart));
  Value end = e.add(begin, integer(itemsPerPart));
  bool isExact = numItems == numSlices * partsOfBlock * itemsPerPart && !isOwnUnit;
  if (!isExact)
    end = e.make<arith::MinSIOp>(end, integer(numItems));
  if (isOwnUnit)
    end = e.select(isOwnUnit, end, begin);
  Value first = domain.isVectorReduced ? e.add(begin, lane) : begin;
  Value firstPosition = position;
  SmallVector<Value> carried = identities(work);
  carried.push_back(first);
  Value endOfWhole = e.sub(end, integer((itemsAtOnce - 1) * itemStride));
  carried = emitLoop(first, endOfWhole, itemsAtOnce * itemStride, carried,
                     [&](Value item, ArrayRef<Value> inner) {
                       SmallVector<Value> next = itemsFrom(work, item, inner.drop_back());
                       next.push_back(e.add(item, integer(itemsAtOnce * itemStride)));
                       return next;
                     });
  Value rest = carried.pop_back_val();
  if (!isExact)
    carried = emitLoop(rest, end, itemStride, carried, [&](Value item, ArrayRef<Value> inner) {
      setItem(item);
      return emitAt(work, inner);
    });
  position = firstPosition;
  return carried;
}

void PartsEmitter::setItem(Value item) {
  splitIndex(domain.reduced, e.make<arith::DivUIOp>(item, integer(itemsPerIndex)));
  if (domain.isVectorReduced)
    position = e.mul(e.make<arith::RemUIOp>(item, integer(itemsPerIndex)), integer(width));
}

SmallVector<Value> PartsEmitter::itemsFrom(const Domain::Pass &work, Value item,
                                           ArrayRef<Value> carried) {
  struct Item {
    DenseMap<int, Value> indices;
    DenseMap<Value, Value> values;
    Value position;
  };
  SmallVector<Item> items;
  for (int64_t i = 0; i < itemsAtOnce; ++i) {
    setItem(e.add(item, integer(i * itemStride)));
    values.clear();
    for (BlockArgument argument : function.getArguments())
      if (domain.hasReduced(argument))
        values[argument] = load(argument);
    items.push_back({indices, values, position});
  }
  SmallVector<Value> sum(carried);
  for (Item &one : items) {
    indices = one.indices, values = one.values, position = one.position;
    sum = emitAt(work, sum);
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// One block
//===----------------------------------------------------------------------===//

void PartsEmitter::finishBlock(int p, const Domain::Pass &work, ArrayRef<Value> partials) {
  std::vector<SmallVector<Value>> sums = overParts(work, partials);
  for (int64_t turn = 0; turn < numTurns; ++turn)
    onlyIf(isThere(turn), [&] {
      if (numSlices == 1)
        return storeTotals(p, work, columnOf(turn), sums[size_t(turn)]);
      for (auto [number, sum] : llvm::enumerate(sums[size_t(turn)]))
        partialAccess(1).store(sum, workspace(), partialOffset(number, slice, columnOf(turn)), 1);
    });
  if (numSlices == 1)
    return;
  onlyIf(share->isLastOf(group, numGroups, numSlices), [&] {
    std::vector<SmallVector<Value>> totals = overSlices(work);
    for (int64_t turn = 0; turn < numTurns; ++turn)
      onlyIf(isThere(turn), [&] { storeTotals(p, work, columnOf(turn), totals[size_t(turn)]); });
  });
}

Value PartsEmitter::columnInBlock(int64_t turn) {
  return columnsOfBlock < partThreads ? e.make<arith::RemUIOp>(inBlock, integer(columnsOfBlock))
                                      : e.add(inBlock, integer(turn * partThreads));
}

Value PartsEmitter::columnOf(int64_t turn) {
  return e.add(e.mul(group, integer(columnsOfBlock)), columnInBlock(turn));
}

Value PartsEmitter::isThere(int64_t turn) {
  Value isOwn = e.less(inBlock, integer(columnsOfBlock));
  return e.make<arith::AndIOp>(isOwn, e.less(columnOf(turn), integer(numColumns)));
}

std::vector<SmallVector<Value>> PartsEmitter::overParts(const Domain::Pass &work,
                                                        ArrayRef<Value> partials) {
  int64_t ofUnit = columnsOfBlock / unitsOfBlock;
  Value at = e.mul(e.make<arith::DivUIOp>(inBlock, integer(unitThreads)), integer(ofUnit));
  static_assert(partThreads * maxReducedWidth <= BlockShare::numFloats);
  std::vector<SmallVector<Value>> sums;
  sums.resize(size_t(numTurns));
  for (auto [reduction, partial] : llvm::zip_equal(work.reductions, partials)) {
    auto put = [&, partial = partial] {
      partialAccess(int(ofUnit)).store(partial, share->memory(), at, width);
    };
    share->barrier();
    if (unitThreads > 1)
      onlyIf(isZero(lane), put);
    else
      put();
    share->barrier();
    for (int64_t turn = 0; turn < numTurns; ++turn)
      sums[size_t(turn)].push_back(overLines(reduction, partsOfBlock, columnInBlock(turn)));
  }
  return sums;
}

std::vector<SmallVector<Value>> PartsEmitter::overSlices(const Domain::Pass &work) {
  int64_t lanes = std::max<int64_t>(1, partThreads / columnsOfBlock);
  lanes = std::min({lanes, mostLanes, int64_t(llvm::bit_ceil(uint64_t(numSlices)))});
  Value ofBlock = e.make<arith::DivUIOp>(inBlock, integer(columnsOfBlock));
  Value first = lanes > 1 ? e.make<arith::RemUIOp>(ofBlock, integer(lanes)) : integer(0);
  std::vector<SmallVector<Value>> totals;
  totals.resize(size_t(numTurns));
  for (int64_t turn = 0; turn < numTurns; ++turn)
    for (size_t number = 0; number < work.reductions.size(); ++number) {
      Value column = columnOf(turn);
      if (numColumns % columnsOfBlock != 0)
        column = e.make<arith::MinSIOp>(column, integer(numColumns - 1));
      totals[size_t(turn)].push_back(
          loadSlices(work.reductions[number], number, column, first, lanes));
    }
  if (lanes == 1)
    return totals;
  // So a block has one turn: `lanes` lines of its columns.
  for (auto [reduction, total] : llvm::zip_equal(work.reductions, totals.front())) {
    share->barrier();
    onlyIf(e.less(inBlock, integer(lanes * columnsOfBlock)),
           [&, total = total] { partialAccess(1).store(total, share->memory(), inBlock, 1); });
    share->barrier();
    total = overLines(reduction, lanes, columnInBlock(0));
  }
  return totals;
}

Value PartsEmitter::overLines(Operation *reduction, int64_t lines, Value column) {
  return share->overLines(column, lines, columnsOfBlock, 0,
                          [&](size_t, Value x, Value y) { return combine(reduction, x, y); });
}

//===----------------------------------------------------------------------===//
// Totals
//===----------------------------------------------------------------------===//

Value PartsEmitter::combineAll(Operation *reduction, ArrayRef<Value> values) {
  Value all = values.front();
  for (Value value : values.drop_front())
    all = combine(reduction, all, value);
  return all;
}

region::Kernel PartsEmitter::emitCombination(int p, const Domain::Pass &work) {
  region::Kernel launch = open(numColumns);
  SmallVector<Value> totals;
  for (auto [number, reduction] : llvm::enumerate(work.reductions))
    totals.push_back(loadSlices(reduction, number, thread, integer(0), 1));
  storeTotals(p, work, thread, totals);
  expandMath(*launch.module);
  return launch;
}

Value PartsEmitter::loadSlices(Operation *reduction, size_t number, Value column, Value first,
                               int64_t step) {
  SmallVector<Value> list;
  for (int64_t begin = 0; begin < numSlices; begin += step) {
    Value at = e.add(first, integer(begin)), isOne;
    if (begin + step > numSlices) {
      isOne = e.less(at, integer(numSlices));
      at = e.select(isOne, at, integer(0));
    }
    Value partial = partialAccess(1).load(workspace(), partialOffset(number, at, column), 0, 1);
    if (isOne)
      partial = e.select(isOne, partial, e.number(partial, identityOf(reduction)));
    list.push_back(partial);
  }
  return combineAll(reduction, list);
}

void PartsEmitter::storeTotals(int p, const Domain::Pass &work, Value column,
                               ArrayRef<Value> totals) {
  int widthOfParts = width;
  width = 1;
  pass = 2 * p + 1;
  values.clear(), constants.clear(), sums.clear(), indices.clear();
  int64_t ofRow = domain.isVectorReduced ? 1 : vectorSize;
  row = e.make<arith::DivUIOp>(column, integer(ofRow));
  position = e.make<arith::RemUIOp>(column, integer(ofRow));
  splitIndex(domain.rows, row);
  bool isLast = p + 1 == domain.numPasses;
  loadTotals(p);
  for (auto [reduction, total] : llvm::zip_equal(work.reductions, totals)) {
    sums[reduction->getResult(0)] = total;
    if (!isLast || !domain.passOf(function, p + 1).isEmpty())
      partialAccess(1).store(total, workspace(), totalOffset(reduction, column), 1);
  }
  if (isLast)
    store(domain.resultsBehindPasses(function));
  width = widthOfParts;
}

std::unique_ptr<NestEmitter> makePartsEmitter(func::FuncOp function, const Domain &domain,
                                              Form form) {
  auto emitter = std::make_unique<PartsEmitter>(function, domain, form);
  return emitter->isWorthwhile() ? std::move(emitter) : nullptr;
}

} // namespace tbc::cuda

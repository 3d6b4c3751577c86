//===- EmitInParts.cpp - Kernels whose reductions are in parts --------------===//

#include "codegen/cuda/ExpandMath.h"
#include "codegen/cuda/NestEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

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
/// The second launch has a lane for at most this many parts divided by the lanes of a warp.
constexpr int64_t mostParts = 1024;
/// Items of a thread. Fewer are read sooner than another kernel is launched.
constexpr int64_t fewestItems = 64, fewestItemsOfPart = 4;
/// Items whose loads a thread has in flight at once.
constexpr int64_t itemsAtOnce = 4;
/// Threads of a block. If the data allow there are at least `aimedThreads`, so 512 blocks.
constexpr int partThreads = 64;
constexpr int64_t partialsAlignment = 64; // floats

/// Pass p is launch 2 p, which writes partial results, and launch 2 p + 1, which combines these.
/// The last combination also writes the results without reduced loops.
class PartsEmitter final : public NestEmitter {
public:
  PartsEmitter(func::FuncOp function, const Domain &domain, Form form)
      : NestEmitter(function, domain, form) {
    chooseParts();
    isInParts = numParts > 1;
    blockThreads = partThreads;
  }

  bool isWorthwhile() const { return isInParts; }

protected:
  region::Kernel emit() override;

private:
  /// Chooses the number of parts of the reduced loops; see `aimedThreads`. An item is one index of
  /// the reduced loops, or one access along the vector if that is reduced too.
  void chooseParts();
  Value workspace() { return buffers.back(); }
  MemoryAccess partialAccess(int elements) {
    return MemoryAccess(builder, loc, builder.getF32Type(), unsigned(elements * sizeof(float)));
  }
  /// The offset of a reduction's total for `column`, and of a part of reduction `number` of a pass.
  Value totalOffset(Operation *reduction, Value column) {
    int64_t number = llvm::find(reductions, reduction) - reductions.begin();
    return e.add(column, integer(number * columnStride));
  }
  Value partialOffset(size_t number, Value part, Value column) {
    int64_t before = int64_t(reductions.size()) + int64_t(number) * numParts;
    return e.add(e.mul(e.add(part, integer(before)), integer(columnStride)), column);
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
  void onFirstLane(llvm::function_ref<void()> body);
  region::Kernel emitParts(int p, const Domain::Pass &work);
  /// Does all items of a part: several at once, with the loads of all of them first.
  SmallVector<Value> overItems(const Domain::Pass &work, Value part);
  void setItem(Value item);
  SmallVector<Value> itemsFrom(const Domain::Pass &work, Value item, ArrayRef<Value> carried);
  /// Combines the parts of pass `p`: a thread per column, or per four. If there are many parts, a
  /// warp.
  region::Kernel emitCombination(int p, const Domain::Pass &work);
  /// Loads this lane's parts of a column, all before the first is used. Those beyond the last are
  /// the identity.
  SmallVector<Value> loadParts(size_t number, Value column, int64_t lanes, double identity);
  Value overWarp(Operation *reduction, Value x);

  int64_t numParts = 1, itemsPerPart = 0, numItems = 0, itemsPerIndex = 1, itemStride = 1;
  int64_t numColumns = 0, columnStride = 0; // of partial results: one per row and vector position
  SmallVector<Operation *> reductions;      // of all passes
};

} // namespace

region::Kernel PartsEmitter::emit() {
  numColumns = domain.product(domain.rows) * (domain.isVectorReduced ? 1 : vectorSize);
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
    if (p < domain.numPasses)
      launches.push_back(emitCombination(p, work));
  }
  int64_t floats = (int64_t(reductions.size()) + most * numParts) * columnStride;
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

void PartsEmitter::loadTotals(int p) {
  for (Operation *reduction : reductions)
    if (Value result = reduction->getResult(0); domain.ready.lookup(result) <= p)
      sums[result] = partialAccess(isWideSum(reduction) ? width : 1)
                         .load(workspace(), totalOffset(reduction, columnHere()),
                               isWideSum(reduction) ? width : 0, width);
}

void PartsEmitter::onFirstLane(llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(builder);
  Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, lane, integer(0));
  auto branch = builder.create<scf::IfOp>(loc, isFirst, /*withElseRegion=*/false);
  builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

region::Kernel PartsEmitter::emitParts(int p, const Domain::Pass &work) {
  region::Kernel launch = open(numThreads * numParts);
  pass = 2 * p;
  Value part = e.make<arith::DivUIOp>(thread, integer(numThreads));
  splitThread(e.make<arith::RemUIOp>(thread, integer(numThreads)));
  loadTotals(p);
  for (BlockArgument argument : function.getArguments())
    if (!domain.hasReduced(argument))
      constants[argument] = load(argument);
  SmallVector<Value> partials = overItems(work, part);
  auto storePartials = [&] {
    for (auto [number, reduction] : llvm::enumerate(work.reductions)) {
      Value partial = partials[number];
      if (width > 1 && !domain.isVectorReduced)
        partial = splat(partial);
      partialAccess(domain.isVectorReduced ? 1 : width)
          .store(partial, workspace(), partialOffset(number, part, columnHere()), width);
    }
  };
  if (domain.isVectorReduced) {
    for (auto [reduction, partial] : llvm::zip_equal(work.reductions, partials))
      partial =
          combineOverWarp(builder, loc, overLanes(reduction, partial), isSum(reduction), form);
    onFirstLane(storePartials);
  } else {
    storePartials();
  }
  expandMath(*launch.module);
  return launch;
}

SmallVector<Value> PartsEmitter::overItems(const Domain::Pass &work, Value part) {
  Value begin = e.mul(part, integer(itemsPerPart));
  Value end = e.add(begin, integer(itemsPerPart));
  bool isExact = numItems % itemsPerPart == 0;
  if (!isExact)
    end = e.make<arith::MinSIOp>(end, integer(numItems));
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

region::Kernel PartsEmitter::emitCombination(int p, const Domain::Pass &work) {
  constexpr int columnsAtOnce = 4;
  int widthOfParts = width;
  width = !domain.isVectorReduced && vectorSize % columnsAtOnce == 0 ? columnsAtOnce : 1;
  int64_t lanes = numParts > warpThreads ? warp : 1;
  region::Kernel launch = open(numColumns / width * lanes);
  pass = 2 * p + 1;
  lane = e.make<arith::RemUIOp>(thread, integer(lanes));
  Value column = e.mul(e.make<arith::DivUIOp>(thread, integer(lanes)), integer(width));
  int64_t ofRow = domain.isVectorReduced ? 1 : vectorSize;
  row = e.make<arith::DivUIOp>(column, integer(ofRow));
  position = e.make<arith::RemUIOp>(column, integer(ofRow));
  splitIndex(domain.rows, row);
  SmallVector<SmallVector<Value>> partials;
  for (size_t number = 0; number < work.reductions.size(); ++number)
    partials.push_back(loadParts(number, column, lanes, identityOf(work.reductions[number])));
  for (auto [number, reduction] : llvm::enumerate(work.reductions)) {
    Value total = partials[number].front();
    for (Value partial : ArrayRef<Value>(partials[number]).drop_front())
      total = combine(reduction, total, partial);
    if (lanes > 1)
      total = overWarp(reduction, total);
    bool isScalar = width > 1 && !domain.hasVector(reduction->getResult(0));
    sums[reduction->getResult(0)] = isScalar ? e.make<vector::ExtractOp>(total, 0) : total;
  }
  bool isLast = p + 1 == domain.numPasses;
  loadTotals(p);
  onFirstLane([&] {
    if (!isLast || !domain.passOf(function, p + 1).isEmpty())
      for (Operation *reduction : work.reductions) {
        Value total = sums.lookup(reduction->getResult(0));
        partialAccess(width).store(width > 1 ? splat(total) : total, workspace(),
                                   totalOffset(reduction, column), width);
      }
    if (isLast)
      store(domain.resultsBehindPasses(function));
  });
  expandMath(*launch.module);
  width = widthOfParts;
  return launch;
}

SmallVector<Value> PartsEmitter::loadParts(size_t number, Value column, int64_t lanes,
                                           double identity) {
  SmallVector<Value> list;
  for (int64_t first = 0; first < numParts; first += lanes) {
    Value part = e.add(lane, integer(first)), isThere;
    if (first + lanes > numParts) {
      isThere = e.less(part, integer(numParts));
      part = e.select(isThere, part, integer(0));
    }
    Value partial = partialAccess(width).load(workspace(), partialOffset(number, part, column),
                                              width > 1 ? width : 0, width);
    if (isThere)
      partial = e.select(isThere, partial, e.number(partial, identity));
    list.push_back(partial);
  }
  return list;
}

Value PartsEmitter::overWarp(Operation *reduction, Value x) {
  auto vector = dyn_cast<VectorType>(x.getType());
  if (!vector)
    return combineOverWarp(builder, loc, x, isSum(reduction), form);
  Value all = x;
  for (int64_t i = 0; i < vector.getDimSize(0); ++i)
    all = e.make<vector::InsertOp>(
        combineOverWarp(builder, loc, e.make<vector::ExtractOp>(x, i), isSum(reduction), form), all,
        i);
  return all;
}

std::unique_ptr<NestEmitter> makePartsEmitter(func::FuncOp function, const Domain &domain,
                                              Form form) {
  auto emitter = std::make_unique<PartsEmitter>(function, domain, form);
  return emitter->isWorthwhile() ? std::move(emitter) : nullptr;
}

} // namespace tbc::cuda

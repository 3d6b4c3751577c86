//===- EmitCudaKernel.cpp - Lower a function of tbc ops to GPU threads ------===//

#include "codegen/cuda/EmitCudaKernel.h"

#include "codegen/cuda/ExpandMath.h"
#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/KernelOp.h"
#include "codegen/region/LoopIndices.h"
#include "codegen/region/MemoryAccess.h"
#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

using region::Combiner;
using region::Domain;
using region::Elements;
using region::KernelOpInterface;
using region::MemoryAccess;

namespace {

constexpr int accessBytes = 16; // widest load or store of a thread
constexpr int64_t maxBlocks = std::numeric_limits<int32_t>::max();

// A kernel with reduced loops takes parts of these if it has few threads. All are functions of the
// shapes, so the order of a sum is the same on every device.
/// Threads in all parts together. Example: 16 bytes each in four loads are 2 MB in flight, and an
/// H100 needs 0.7 (tests/gate/Gate.h).
constexpr int64_t aimedThreads = 1 << 15;
/// The second launch has a lane for at most this many parts divided by the lanes of a warp.
constexpr int64_t mostParts = 1024;
/// With fewer parts, another launch costs more than it saves.
constexpr int64_t fewestParts = 4;
/// Items of a thread. Fewer are read sooner than another kernel is launched.
constexpr int64_t fewestItems = 64, fewestItemsOfPart = 4;
/// Items whose loads a thread has in flight at once.
constexpr int64_t itemsAtOnce = 4;
/// Threads of a block. If the data allow there are at least `aimedThreads`, so 512 blocks.
constexpr int partThreads = 64;
constexpr int64_t partialsAlignment = 64; // floats

int64_t bytesOf(Value value) { // of one element in memory
  return std::max(8U, tensorType(value).getElementTypeBitWidth()) / 8;
}

/// Whether it calls functions of CUDA's libdevice: those with neither an instruction nor a
/// polynomial.
bool needsLibrary(ModuleOp module) {
  bool found = false;
  module.walk([&](Operation *op) {
    bool isKnown =
        isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp, math::AtanOp, math::SqrtOp,
            math::RsqrtOp, math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::RoundOp,
            math::RoundEvenOp, math::TruncOp, math::CopySignOp, math::FmaOp>(op);
    found |= isa<math::MathDialect>(op->getDialect()) && !isKnown;
    // The polynomials are of f32.
    found |= isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp, math::AtanOp>(op) &&
             !getElementTypeOrSelf(op->getResult(0)).isF32();
    found |= isa<LLVM::SinOp, LLVM::CosOp, LLVM::PowOp, LLVM::PowIOp, LLVM::ExpOp, LLVM::Exp2Op,
                 LLVM::LogOp, LLVM::Log2Op, LLVM::Log10Op>(op);
  });
  return found;
}

class CudaEmitter {
public:
  CudaEmitter(func::FuncOp function, const Domain &domain, Form form)
      : function(function), domain(domain), form(form), builder(function.getContext()),
        loc(builder.getUnknownLoc()), e{builder, loc},
        warp(form == Form::Device ? warpThreads : 1) {
    vectorSize = domain.product(domain.vector);
    reducedSize = domain.product(domain.reduced);
    chooseWidth();
    perRow = domain.isVectorReduced ? warp : vectorSize / width;
    numThreads = domain.product(domain.rows) * perRow;
    chooseParts();
  }

  FailureOr<region::Kernel> run() {
    if (blocksOf(numThreads) > maxBlocks)
      return failure();
    lastRead.assign(function.getNumArguments(), -1);
    written.assign(returned().size(), 0);
    region::Kernel kernel = numParts > 1 ? emitInParts() : emitWhole();
    if (needsLibrary(*kernel.module))
      return failure();
    kernel.mayOverwrite = mayOverwrite();
    return kernel;
  }

private:
  ValueRange returned() { return function.getBody().front().getTerminator()->getOperands(); }
  int numBuffers() { return int(function.getNumArguments() + returned().size()); }
  Value integer(int64_t value) { return builder.create<arith::ConstantIntOp>(loc, value, 64); }

  /// Chooses as many elements as one access of the widest type moves, if the row length is a
  /// multiple.
  void chooseWidth() {
    int64_t widest = 1;
    auto consider = [&](Value value) {
      if (domain.hasVector(value))
        widest = std::max(widest, bytesOf(value));
    };
    llvm::for_each(function.getArguments(), consider);
    llvm::for_each(returned(), consider);
    width = accessBytes / int(widest);
    while (vectorSize % width != 0)
      width /= 2;
  }

  /// Chooses the number of parts of the reduced loops; see `aimedThreads`. An item is one index of
  /// the reduced loops, or one access along the vector if that is reduced too.
  void chooseParts() {
    itemsPerIndex = domain.isVectorReduced ? vectorSize / width : 1;
    numItems = reducedSize * itemsPerIndex;
    itemStride = domain.isVectorReduced ? warp : 1;
    auto ceiling = [](int64_t a, int64_t b) {
      return int64_t(llvm::divideCeil(uint64_t(a), uint64_t(b)));
    };
    int64_t ofThread = ceiling(numItems, itemStride);
    // Not in parts, a warp takes one index of the reduced loops at a time.
    int64_t ofWhole = reducedSize * ceiling(itemsPerIndex, itemStride);
    int64_t wanted = std::min(mostParts, ceiling(aimedThreads, numThreads));
    if (domain.numPasses == 0 || ofWhole < fewestItems || wanted < fewestParts)
      return;
    auto each =
        int64_t(llvm::bit_floor(uint64_t(std::max(fewestItemsOfPart, ceiling(ofThread, wanted)))));
    itemsPerPart = each * itemStride;
    numParts = ceiling(numItems, itemsPerPart);
  }

  int64_t blocksOf(int64_t threads) const {
    int ofBlock = numParts > 1 ? partThreads : threadsPerBlock;
    return int64_t(llvm::divideCeil(uint64_t(threads), uint64_t(ofBlock)));
  }

  /// Begins the function of a launch, and the code of its `thread`.
  region::Kernel open(int64_t threads) {
    region::Kernel launch;
    launch.module = ModuleOp::create(loc);
    launch.extent = form == Form::Device ? blocksOf(threads) : threads;
    launch.threads = numParts > 1 ? partThreads : 0;
    builder.setInsertionPointToEnd(launch.module->getBody());
    KernelFrame frame =
        openKernel(builder, loc, numBuffers() + (numParts > 1 ? 1 : 0), threads, form);
    buffers = frame.buffers, thread = frame.thread;
    values.clear(), constants.clear(), sums.clear(), indices.clear();
    return launch;
  }

  /// Sets the indices of a thread that begins at the row's first element.
  void splitThread(Value number) {
    row = e.make<arith::DivUIOp>(number, integer(perRow));
    lane = e.make<arith::RemUIOp>(number, integer(perRow));
    splitIndex(domain.rows, row);
    position = e.mul(lane, integer(width));
  }

  region::Kernel emitWhole() {
    region::Kernel kernel = open(numThreads);
    splitThread(thread);
    for (pass = 0; pass <= domain.numPasses; ++pass)
      if (Domain::Pass work = domain.passOf(function, pass); !work.isEmpty())
        emitPass(work);
    storeOnce();
    expandMath(*kernel.module);
    return kernel;
  }

  void splitIndex(ArrayRef<int> loops, Value index) {
    region::splitIndex(e, domain, loops, index, indices);
  }

  //===--------------------------------------------------------------------===//
  // Values: computed anew wherever they are needed; LLVM finds what is common
  //===--------------------------------------------------------------------===//

  /// Returns an element of `value`, or a vector of them, at the current indices.
  Value evaluate(Value value) {
    if (Value sum = sums.lookup(value))
      return sum;
    Operation *op = value.getDefiningOp();
    if (!op) {
      int argument = int(cast<BlockArgument>(value).getArgNumber());
      lastRead[argument] = std::max(lastRead[argument], pass);
    }
    if (Value known = values.lookup(value))
      return known;
    if (Value known = constants.lookup(value))
      return known;
    if (!op)
      return values[value] = load(cast<BlockArgument>(value));
    SmallVector<Value> elements;
    bool anyVector = false;
    for (Value operand : op->getOperands()) {
      elements.push_back(evaluate(operand));
      anyVector |= isa<VectorType>(elements.back().getType());
    }
    // Operands without dims stay scalars (KernelOpInterface).
    bool isScalarOp = tensorType(op->getResult(0)).getRank() == 0;
    for (auto [operand, element] : llvm::zip_equal(op->getOperands(), elements))
      if (anyVector && (isScalarOp || tensorType(operand).getRank() > 0))
        element = splat(element);
    auto results = cast<KernelOpInterface>(op).buildElement(builder, elements);
    for (auto [result, element] : llvm::zip_equal(op->getResults(), results))
      values[result] = element;
    return values[value];
  }

  Value load(BlockArgument argument) {
    return accessTo(argument).load(buffers[argument.getArgNumber()], offsetOf(argument),
                                   isWide(argument) ? width : 0, width);
  }

  bool isWide(Value value) const { return width > 1 && domain.hasVector(value); }

  Value splat(Value element) {
    if (width == 1 || isa<VectorType>(element.getType()))
      return element;
    return e.make<vector::SplatOp>(VectorType::get({width}, element.getType()), element);
  }

  /// Returns the offset, in elements, of `value` at the current indices.
  Value offsetOf(Value value) {
    Value offset = integer(0);
    for (auto [loop, stride] : llvm::zip_equal(domain.loops.lookup(value), domain.strides(value)))
      if (!llvm::is_contained(domain.vector, loop))
        offset = e.add(offset, e.mul(indices.lookup(loop), integer(stride)));
    return domain.hasVector(value) ? e.add(offset, position) : offset;
  }

  MemoryAccess accessTo(Value value) {
    int64_t elements = isWide(value) ? width : 1;
    for (auto [loop, stride] : llvm::zip_equal(domain.loops.lookup(value), domain.strides(value)))
      if (!llvm::is_contained(domain.vector, loop) && stride % elements != 0)
        elements = 1;
    return MemoryAccess(builder, loc, tensorType(value).getElementType(),
                        unsigned(elements * bytesOf(value)), roundingOf(form));
  }

  /// Stores these results at the current indices. All are computed before the first store, because
  /// a result may lie over another one's operand (`mayOverwrite`).
  void store(ArrayRef<int> results) {
    SmallVector<Value> elements;
    for (int result : results) {
      Value element = evaluate(returned()[result]);
      elements.push_back(isWide(returned()[result]) ? splat(element) : element);
    }
    for (auto [result, element] : llvm::zip_equal(results, elements)) {
      Value value = returned()[result];
      accessTo(value).store(element, buffers[function.getNumArguments() + result], offsetOf(value),
                            width);
      written[result] = pass;
    }
  }

  /// Stores the results without reduced loops. One lane stores if all lanes of the warp have the
  /// same value.
  void storeOnce() {
    OpBuilder::InsertionGuard guard(builder);
    SmallVector<int> results = domain.resultsBehindPasses(function);
    if (results.empty())
      return;
    values.clear();
    if (domain.isVectorReduced && warp > 1) {
      Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, lane, integer(0));
      auto branch = builder.create<scf::IfOp>(loc, isFirst, /*withElseRegion=*/false);
      builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    }
    store(results);
    values.clear();
  }

  //===--------------------------------------------------------------------===//
  // Passes over the reduced loops
  //===--------------------------------------------------------------------===//

  bool isSum(Operation *reduction) {
    return cast<KernelOpInterface>(reduction).getCombiner() == Combiner::Sum;
  }

  double identityOf(Operation *reduction) {
    return isSum(reduction) ? 0.0 : -std::numeric_limits<double>::infinity();
  }

  SmallVector<Value> identities(const Domain::Pass &work) {
    SmallVector<Value> list;
    for (Operation *reduction : work.reductions) {
      bool wide =
          width > 1 && (domain.isVectorReduced || domain.hasVector(reduction->getResult(0)));
      Type element = builder.getF32Type();
      list.push_back(e.constant(wide ? Type(VectorType::get({width}, element)) : element,
                                identityOf(reduction)));
    }
    return list;
  }

  Value combine(Operation *reduction, Value x, Value y) {
    return isSum(reduction) ? e.add(x, y) : e.larger(x, y);
  }

  void emitPass(const Domain::Pass &work) {
    SmallVector<Value> carried = overReduced(work, identities(work));
    for (auto [reduction, sum] : llvm::zip_equal(work.reductions, carried))
      sums[reduction->getResult(0)] =
          domain.isVectorReduced
              ? combineOverWarp(builder, loc, overLanes(reduction, sum), isSum(reduction), form)
              : sum;
  }

  SmallVector<Value> emitLoop(Value begin, Value end, int64_t step, ArrayRef<Value> carried,
                              llvm::function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) {
    OpBuilder::InsertionGuard guard(builder);
    auto loop = builder.create<scf::ForOp>(loc, begin, end, integer(step), carried);
    if (carried.empty())
      builder.setInsertionPoint(loop.getBody()->getTerminator());
    else
      builder.setInsertionPointToEnd(loop.getBody());
    values.clear();
    SmallVector<Value> next =
        body(loop.getInductionVar(), SmallVector<Value>(loop.getRegionIterArgs()));
    if (!carried.empty())
      builder.create<scf::YieldOp>(loc, next);
    values.clear();
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<Value> overReduced(const Domain::Pass &work, ArrayRef<Value> carried) {
    if (domain.reduced.empty())
      return overRow(work, carried);
    return emitLoop(integer(0), integer(reducedSize), 1, carried,
                    [&](Value index, ArrayRef<Value> inner) {
                      splitIndex(domain.reduced, index);
                      return overRow(work, inner);
                    });
  }

  SmallVector<Value> overRow(const Domain::Pass &work, ArrayRef<Value> carried) {
    if (!domain.isVectorReduced)
      return emitAt(work, carried);
    Value first = position;
    SmallVector<Value> result = emitLoop(first, integer(vectorSize), int64_t(warp) * width, carried,
                                         [&](Value index, ArrayRef<Value> inner) {
                                           position = index;
                                           return emitAt(work, inner);
                                         });
    position = first;
    return result;
  }

  SmallVector<Value> emitAt(const Domain::Pass &work, ArrayRef<Value> carried) {
    SmallVector<Value> next;
    for (auto [reduction, sum] : llvm::zip_equal(work.reductions, carried)) {
      Value element = evaluate(reduction->getOperand(0));
      if (isa<VectorType>(sum.getType()))
        element = splat(element);
      next.push_back(combine(reduction, sum, element));
    }
    store(work.results);
    values.clear();
    return next;
  }

  /// Combines the elements of one lane's vector.
  Value overLanes(Operation *reduction, Value sum) {
    if (!isa<VectorType>(sum.getType()))
      return sum;
    return builder.create<vector::ReductionOp>(
        loc, isSum(reduction) ? vector::CombiningKind::ADD : vector::CombiningKind::MAXNUMF, sum,
        arith::FastMathFlags::reassoc);
  }

  //===--------------------------------------------------------------------===//
  // In parts: pass p is launch 2 p, which writes partial results, and launch 2 p + 1, which
  // combines these. The last combination also writes the results without reduced loops.
  //===--------------------------------------------------------------------===//

  region::Kernel emitInParts() {
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
  void loadTotals(int p) {
    for (Operation *reduction : reductions)
      if (Value result = reduction->getResult(0); domain.ready.lookup(result) <= p)
        sums[result] = partialAccess(isWideSum(reduction) ? width : 1)
                           .load(workspace(), totalOffset(reduction, columnHere()),
                                 isWideSum(reduction) ? width : 0, width);
  }

  void onFirstLane(llvm::function_ref<void()> body) {
    OpBuilder::InsertionGuard guard(builder);
    Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, lane, integer(0));
    auto branch = builder.create<scf::IfOp>(loc, isFirst, /*withElseRegion=*/false);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    body();
  }

  region::Kernel emitParts(int p, const Domain::Pass &work) {
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

  /// Does all items of a part: several at once, with the loads of all of them first.
  SmallVector<Value> overItems(const Domain::Pass &work, Value part) {
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

  void setItem(Value item) {
    splitIndex(domain.reduced, e.make<arith::DivUIOp>(item, integer(itemsPerIndex)));
    if (domain.isVectorReduced)
      position = e.mul(e.make<arith::RemUIOp>(item, integer(itemsPerIndex)), integer(width));
  }

  SmallVector<Value> itemsFrom(const Domain::Pass &work, Value item, ArrayRef<Value> carried) {
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

  /// Combines the parts of pass `p`: a thread per column, or per four. If there are many parts, a
  /// warp.
  region::Kernel emitCombination(int p, const Domain::Pass &work) {
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

  /// Loads this lane's parts of a column, all before the first is used. Those beyond the last are
  /// the identity.
  SmallVector<Value> loadParts(size_t number, Value column, int64_t lanes, double identity) {
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

  Value overWarp(Operation *reduction, Value x) {
    auto vector = dyn_cast<VectorType>(x.getType());
    if (!vector)
      return combineOverWarp(builder, loc, x, isSum(reduction), form);
    Value all = x;
    for (int64_t i = 0; i < vector.getDimSize(0); ++i)
      all = e.make<vector::InsertOp>(
          combineOverWarp(builder, loc, e.make<vector::ExtractOp>(x, i), isSum(reduction), form),
          all, i);
    return all;
  }

  /// Returns for each (result, operand) whether the result may lie over the operand. It may if
  /// every thread reads only the elements that it writes, and in no later pass than the write.
  /// In parts: in no later launch.
  /// Within a pass, `store` reads before it writes.
  std::vector<std::vector<bool>> mayOverwrite() {
    std::vector<std::vector<bool>> answer;
    for (auto [i, value] : llvm::enumerate(returned())) {
      std::vector<bool> &row = answer.emplace_back();
      bool isOwn = domain.hasVector(value) || numThreads == domain.product(domain.rows) ||
                   (numParts > 1 && !domain.hasReduced(value));
      for (BlockArgument argument : function.getArguments())
        row.push_back(isOwn && domain.loops.lookup(value) == domain.loops.lookup(argument) &&
                      value.getType() == argument.getType() &&
                      lastRead[argument.getArgNumber()] <= written[i]);
    }
    return answer;
  }

  func::FuncOp function;
  const Domain &domain;
  Form form;
  OpBuilder builder;
  Location loc;
  Elements e;

  int warp;      // lanes per row
  int width = 1; // elements per thread at a time
  int64_t vectorSize = 1, reducedSize = 1, perRow = 1, numThreads = 1;
  // In parts.
  int64_t numParts = 1, itemsPerPart = 0, numItems = 0, itemsPerIndex = 1, itemStride = 1;
  int64_t numColumns = 0, columnStride = 0; // of partial results: one per row and vector position
  SmallVector<Operation *> reductions;      // of all passes

  SmallVector<Value> buffers;
  Value thread;
  DenseMap<Value, Value> values;      // at the current indices
  DenseMap<Value, Value> constants;   // arguments without reduced loops, if loaded ahead
  DenseMap<Value, Value> sums;        // results of reductions, for the whole row
  DenseMap<int, Value> indices;       // of loops outside of the vector's
  Value row, position, lane;          // of all rows; along the vector's loops; in the warp
  int pass = 0;                       // or launch, in parts
  std::vector<int> lastRead, written; // passes, by argument and by result
};

} // namespace

void prepareContext(MLIRContext &context) {
  region::prepareContext(context);
  context.loadDialect<NVVM::NVVMDialect>();
}

FailureOr<region::Kernel> emitCudaKernel(func::FuncOp function, const Domain &domain, Form form) {
  return CudaEmitter(function, domain, form).run();
}

} // namespace tbc::cuda

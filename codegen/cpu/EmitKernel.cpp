//===- EmitKernel.cpp - Lower a function of tbc ops to loops over vectors ---===//

#include "codegen/cpu/EmitKernel.h"

#include "codegen/region/KernelOp.h"
#include "codegen/region/LoopIndices.h"
#include "codegen/region/MemoryAccess.h"
#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cpu {

using namespace region;
namespace {

/// Elements per iteration of an elementwise kernel. Large enough that threads rarely fetch the next
/// iteration, small enough that all threads get work.
constexpr int64_t blockElements = 4096;
/// Kernels with more ops keep fewer elements in registers at a time.
constexpr int smallKernelOps = 8;

/// The scope of a computation: once per call, per iteration, per vector, per index of the reduced
/// loops, per vector of the reduced loops. Inner scopes reuse values of outer ones.
enum Level { Call, Row, Lanes, Reduced, Inner };
constexpr int numLevels = 5;

struct Scope {
  bool isOpen = false;
  Block *block = nullptr;
  Block::iterator point; // insertion point of values added later
  DenseMap<Value, Value> values, splats;
};

class KernelEmitter {
public:
  KernelEmitter(func::FuncOp function, const Domain &domain, int lanes)
      : function(function), domain(domain), builder(function.getContext()),
        loc(builder.getUnknownLoc()), e{builder, loc} {
    chooseSizes(lanes);
  }

  Kernel run() {
    Kernel kernel;
    kernel.module = ModuleOp::create(loc);
    kernel.extent = domain.product(domain.rows) * numBlocks;
    builder.setInsertionPointToEnd(kernel.module->getBody());
    emitFunction();
    kernel.mayOverwrite = mayOverwrite();
    return kernel;
  }

private:
  //===--------------------------------------------------------------------===//
  // Sizes
  //===--------------------------------------------------------------------===//

  void chooseSizes(int lanes) {
    vectorSize = domain.product(domain.vector);
    reducedSize = domain.product(domain.reduced);
    bool isSmall = std::distance(function.getBody().front().begin(),
                                 function.getBody().front().end()) <= smallKernelOps;
    bool sumsRows = !domain.isVectorReduced && reducedSize > 1;
    width = lanes * (isSmall || sumsRows ? 4 : 2);
    width = int(std::min<int64_t>(width, llvm::PowerOf2Ceil(uint64_t(vectorSize))));
    width = std::max(width, 2);
    if (domain.isVectorReduced)
      return;
    blockSize = sumsRows ? width : blockElements;
    if (!sumsRows && domain.product(domain.rows) > 1)
      blockSize = std::max<int64_t>(blockSize, llvm::alignTo(vectorSize / 4, width));
    numBlocks = llvm::divideCeil(uint64_t(vectorSize), uint64_t(blockSize));
  }

  ValueRange returned() { return function.getBody().front().getTerminator()->getOperands(); }

  //===--------------------------------------------------------------------===//
  // Scopes
  //===--------------------------------------------------------------------===//

  Value integer(int64_t value) { return builder.create<arith::ConstantIntOp>(loc, value, 64); }

  void open(Level level, Block *block) {
    Scope &scope = scopes[level];
    scope = Scope();
    scope.isOpen = true;
    scope.block = block;
    bool hasTerminator = !block->empty() && block->back().hasTrait<OpTrait::IsTerminator>();
    scope.point = hasTerminator ? std::prev(block->end()) : block->end();
    builder.setInsertionPoint(block, scope.point);
  }
  /// Moves the insertion point of scope `level` before `op`, the op of the next inner scope.
  void nest(Level level, Operation *op) { scopes[level].point = Block::iterator(op); }
  /// Moves the insertion point back to the end of the scope.
  void resume(Level level) {
    Scope &scope = scopes[level];
    bool hasTerminator =
        !scope.block->empty() && scope.block->back().hasTrait<OpTrait::IsTerminator>();
    scope.point = hasTerminator ? std::prev(scope.block->end()) : scope.block->end();
    builder.setInsertionPoint(scope.block, scope.point);
  }
  void close(Level level) { scopes[level] = Scope(); }

  Level levelOf(Value value) {
    auto known = levels.find(value);
    if (known != levels.end())
      return known->second;
    Level level = Call;
    Operation *op = value.getDefiningOp();
    if (!op) {
      level = levelInMemory(value);
    } else if (domain.isReduction(*op)) {
      level = domain.isVectorReduced ? Row : Lanes;
    } else {
      for (Value operand : op->getOperands())
        level = std::max(level, levelOf(operand));
    }
    levels[value] = level;
    return level;
  }
  Level levelInMemory(Value value) const {
    if (domain.isVectorReduced && domain.hasVector(value))
      return Inner;
    if (domain.hasReduced(value))
      return Reduced;
    if (domain.hasVector(value))
      return Lanes;
    return domain.loops.lookup(value).empty() ? Call : Row;
  }

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  /// Returns an element of `value`, or a vector of them, at the indices of the open scopes.
  Value evaluate(Value value) {
    Level level = openLevel(levelOf(value));
    Scope &scope = scopes[level];
    if (Value known = scope.values.lookup(value))
      return known;
    OpBuilder::InsertionGuard guard(builder);
    Operation *op = value.getDefiningOp();
    if (!op) {
      builder.setInsertionPoint(scope.block, scope.point);
      int argument = int(cast<BlockArgument>(value).getArgNumber());
      lastRead[argument] = std::max(lastRead[argument], pass);
      return scopes[level].values[value] = load(cast<BlockArgument>(value));
    }
    assert(!domain.isReduction(*op) && "reductions are computed by the passes before");
    SmallVector<Value> elements = operandsOf(*op);
    builder.setInsertionPoint(scope.block, scope.point);
    auto results = cast<KernelOpInterface>(op).buildElement(builder, elements);
    for (auto [result, element] : llvm::zip_equal(op->getResults(), results))
      scopes[level].values[result] = element;
    return scopes[level].values[value];
  }

  /// Returns the nearest open scope at or outside of `level`; some kernels lack scopes.
  Level openLevel(Level level) const {
    while (!scopes[level].isOpen)
      level = Level(level - 1);
    return level;
  }

  SmallVector<Value> operandsOf(Operation &op) {
    SmallVector<Value> elements;
    bool anyVector = false;
    for (Value operand : op.getOperands()) {
      elements.push_back(evaluate(operand));
      anyVector |= isa<VectorType>(elements.back().getType());
    }
    // Operands without dims stay scalars, so values derived from them alone are computed once.
    bool isScalarOp = tensorType(op.getResult(0)).getRank() == 0;
    for (auto [operand, element] : llvm::zip_equal(op.getOperands(), elements))
      if (anyVector && (isScalarOp || tensorType(operand).getRank() > 0))
        element = splat(operand, element);
    return elements;
  }

  /// `element` of `value` in every lane.
  Value splat(Value value, Value element) {
    if (isa<VectorType>(element.getType()))
      return element;
    Scope &scope = scopes[openLevel(levelOf(value))];
    Value &known = scope.splats[value];
    if (!known) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPoint(scope.block, scope.point);
      known = e.make<vector::SplatOp>(VectorType::get({width}, element.getType()), element);
    }
    return known;
  }

  /// Returns the offset, in elements, of `value` at the current indices in the buffer of `array`.
  Value offsetOf(Value value, const Array &array) {
    Value offset = integer(array.first);
    bool hasVector = domain.hasVector(value);
    for (auto [loop, stride] :
         llvm::zip_equal(domain.loops.lookup(value), domain.strides(value, array)))
      if (!llvm::is_contained(domain.vector, loop))
        offset = e.add(offset, e.mul(indices.lookup(loop), integer(stride)));
    return hasVector ? e.add(offset, position) : offset;
  }

  Value load(BlockArgument argument) {
    const Array &array = domain.arrayOf(argument);
    MemoryAccess access(builder, loc, tensorType(argument).getElementType());
    return access.load(buffers[array.buffer], offsetOf(argument, array),
                       domain.hasVector(argument) ? width : 0, valid);
  }

  /// Stores these results at the current indices. All are computed before the first store, because
  /// a result may lie over another one's operand (`mayOverwrite`).
  void store(ArrayRef<int> results) {
    SmallVector<Value> elements;
    for (int result : results) {
      Value value = returned()[result];
      Value element = evaluate(value);
      elements.push_back(domain.hasVector(value) ? splat(value, element) : element);
    }
    for (auto [result, element] : llvm::zip_equal(results, elements)) {
      Value value = returned()[result];
      MemoryAccess access(builder, loc, tensorType(value).getElementType());
      const Array &array = domain.results[result];
      access.store(element, buffers[domain.numOperands + array.buffer], offsetOf(value, array),
                   valid);
      written[result] = pass;
    }
  }

  //===--------------------------------------------------------------------===//
  // The function and its loops
  //===--------------------------------------------------------------------===//

  void emitFunction() {
    Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
    Type i64 = builder.getI64Type();
    auto type = builder.getFunctionType({pointer, i64, i64}, {});
    auto kernel = builder.create<func::FuncOp>(loc, kKernelName, type);
    Block *entry = kernel.addEntryBlock();
    builder.setInsertionPointToEnd(entry);
    int numBuffers = domain.numOperands + domain.numResults;
    for (int i = 0; i < numBuffers; ++i) {
      Value at = builder.create<LLVM::GEPOp>(loc, pointer, pointer, entry->getArgument(0),
                                             ArrayRef<LLVM::GEPArg>{i}, true);
      buffers.push_back(builder.create<LLVM::LoadOp>(loc, pointer, at));
    }
    lastRead.assign(function.getNumArguments(), -1);
    written.assign(returned().size(), 0);
    open(Call, entry);
    auto loop =
        builder.create<scf::ForOp>(loc, entry->getArgument(1), entry->getArgument(2), integer(1));
    builder.create<func::ReturnOp>(loc);
    nest(Call, loop);
    open(Row, loop.getBody());
    emitRow(loop.getInductionVar());
  }

  void splitIndex(ArrayRef<int> loops, Value index) {
    region::splitIndex(e, domain, loops, index, indices);
  }

  void emitRow(Value iteration) {
    Value row = iteration, blockNumber = integer(0);
    if (numBlocks > 1) {
      row = e.make<arith::DivUIOp>(iteration, integer(numBlocks));
      blockNumber = e.make<arith::RemUIOp>(iteration, integer(numBlocks));
    }
    splitIndex(domain.rows, row);
    valid = width;
    if (domain.isVectorReduced) {
      emitPasses(Row);
      return;
    }
    if (domain.vector.empty()) {
      position = integer(0);
      open(Lanes, scopes[Row].block);
      emitPasses(Lanes);
      return;
    }
    int64_t whole = vectorSize / width * width;
    Value begin = e.mul(blockNumber, integer(blockSize));
    if (whole > 0) {
      Value end = e.make<arith::MinSIOp>(e.add(begin, integer(blockSize)), integer(whole));
      auto loop = builder.create<scf::ForOp>(loc, begin, end, integer(width));
      nest(Row, loop);
      open(Lanes, loop.getBody());
      position = loop.getInductionVar();
      emitPasses(Lanes);
      close(Lanes);
      resume(Row);
    }
    if (whole < vectorSize)
      emitTail(blockNumber, whole);
  }

  /// Emits the tail after the whole vectors, in the iteration of the last block.
  void emitTail(Value blockNumber, int64_t whole) {
    Value isLast =
        e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, blockNumber, integer(numBlocks - 1));
    auto branch = builder.create<scf::IfOp>(loc, isLast, /*withElseRegion=*/false);
    nest(Row, branch);
    open(Lanes, branch.thenBlock());
    position = integer(whole);
    valid = int(vectorSize - whole);
    emitPasses(Lanes);
    close(Lanes);
    resume(Row);
  }

  //===--------------------------------------------------------------------===//
  // Passes over the reduced loops
  //===--------------------------------------------------------------------===//

  /// Emits all passes, then the results written once. `level`: the open scope.
  void emitPasses(Level level) {
    for (pass = 0; pass <= domain.numPasses; ++pass)
      if (Domain::Pass work = domain.passOf(function, pass); !work.isEmpty())
        emitPass(level, work);
    resume(level);
    store(domain.resultsBehindPasses(function));
  }

  Combiner combinerOf(Operation *reduction) {
    return cast<KernelOpInterface>(reduction).getCombiner();
  }

  void emitPass(Level level, const Domain::Pass &work) {
    resume(level);
    SmallVector<Value> sums;
    for (Operation *reduction : work.reductions) {
      double neutral =
          combinerOf(reduction) == Combiner::Sum ? 0.0 : -std::numeric_limits<double>::infinity();
      bool isVector = domain.isVectorReduced || domain.hasVector(reduction->getResult(0));
      Type element = builder.getF32Type();
      Type type = isVector ? Type(VectorType::get({width}, element)) : element;
      sums.push_back(e.constant(type, neutral));
    }
    resume(level);
    sums = overReduced(level, work, sums);
    for (auto [reduction, sum] : llvm::zip_equal(work.reductions, sums))
      scopes[level].values[reduction->getResult(0)] =
          domain.isVectorReduced ? overLanes(reduction, sum) : sum;
    resume(level);
  }

  Value overLanes(Operation *reduction, Value lanes) {
    bool isSum = combinerOf(reduction) == Combiner::Sum;
    return builder.create<vector::ReductionOp>(
        loc, isSum ? vector::CombiningKind::ADD : vector::CombiningKind::MAXIMUMF, lanes,
        arith::FastMathFlags::reassoc | arith::FastMathFlags::nsz);
  }

  /// Emits a loop inside `outer`. `body` maps its index and the carried values to the next carried
  /// values.
  SmallVector<Value> emitLoop(Level outer, Level inner, int64_t end, int64_t step,
                              ArrayRef<Value> carried,
                              llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
    resume(outer);
    auto loop = builder.create<scf::ForOp>(loc, integer(0), integer(end), integer(step), carried);
    nest(outer, loop);
    open(inner, loop.getBody());
    SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
    resume(inner);
    if (!carried.empty())
      builder.create<scf::YieldOp>(loc, next);
    close(inner);
    resume(outer);
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<Value> overReduced(Level level, const Domain::Pass &work, ArrayRef<Value> sums) {
    if (domain.reduced.empty())
      return overVector(level, work, SmallVector<Value>(sums));
    return emitLoop(level, Reduced, reducedSize, 1, sums, [&](Value index, ValueRange carried) {
      splitIndex(domain.reduced, index);
      return overVector(Reduced, work, SmallVector<Value>(carried));
    });
  }

  SmallVector<Value> overVector(Level level, const Domain::Pass &work, SmallVector<Value> sums) {
    if (!domain.isVectorReduced)
      return emitAt(work, sums);
    int64_t whole = vectorSize / width * width;
    valid = width;
    if (whole > 0)
      sums = emitLoop(level, Inner, whole, width, sums, [&](Value index, ValueRange carried) {
        position = index;
        return emitAt(work, SmallVector<Value>(carried));
      });
    if (whole < vectorSize) {
      resume(level);
      position = integer(whole);
      valid = int(vectorSize - whole);
      openBehind(Inner, level);
      sums = emitAt(work, sums);
      close(Inner);
      valid = width;
      resume(level);
    }
    return sums;
  }

  /// Opens the scope `inner` in the block of `outer`, after the current content of `outer`.
  void openBehind(Level inner, Level outer) {
    Scope &scope = scopes[inner];
    scope = Scope();
    scope.isOpen = true;
    scope.block = scopes[outer].block;
    scope.point = scopes[outer].point;
    // Values added to `outer` later go before a marker, which is folded away.
    Operation *marker = integer(0).getDefiningOp();
    nest(outer, marker);
    scope.point = std::next(Block::iterator(marker));
    builder.setInsertionPoint(scope.block, scope.point);
  }

  /// Combines and writes at the current indices.
  SmallVector<Value> emitAt(const Domain::Pass &work, SmallVector<Value> sums) {
    for (auto [reduction, sum] : llvm::zip_equal(work.reductions, sums)) {
      Value operand = reduction->getOperand(0);
      Value element = evaluate(operand);
      if (isa<VectorType>(sum.getType()))
        element = splat(operand, element);
      Value combined =
          combinerOf(reduction) == Combiner::Sum ? e.add(sum, element) : e.larger(sum, element);
      if (domain.isVectorReduced && valid < width)
        combined = e.select(makeMask(builder, loc, width, valid), combined, sum);
      sum = combined;
    }
    store(work.results);
    return sums;
  }

  /// Returns for each (result, operand) whether the result may lie over the operand. It may if the
  /// operand is read at the same index, and not in a later pass than the write. Within a pass,
  /// `store` reads all operands before it writes. Example: with t = f(a), x = g(b), y = h(t), x may
  /// lie over a although y is stored after x.
  std::vector<std::vector<bool>> mayOverwrite() {
    return domain.overwrites(function, [&](size_t result, BlockArgument argument) {
      return lastRead[argument.getArgNumber()] <= written[result];
    });
  }

  func::FuncOp function;
  const Domain &domain;
  OpBuilder builder;
  Location loc;
  Elements e;

  int width = 2; // of vectors, in elements
  int64_t vectorSize = 1, reducedSize = 1, blockSize = 1, numBlocks = 1;

  SmallVector<Value> buffers;
  Scope scopes[numLevels];
  DenseMap<Value, Level> levels;
  DenseMap<int, Value> indices; // of loops outside of the vector's
  Value position;               // along the vector's loops
  int valid = 0;                // lanes
  int pass = 0;
  std::vector<int> lastRead, written; // passes, by argument and by result
};

} // namespace

Kernel emitKernel(func::FuncOp function, const Domain &domain, int lanes) {
  return KernelEmitter(function, domain, lanes).run();
}

RegionKernels formRegions(program::Program &program, const EmittedOps &origins,
                          const CpuTarget &target) {
  return region::formRegions(program, origins,
                             [&](func::FuncOp function, const Domain &domain) -> FailureOr<Kernel> {
                               if (!domain.columnSums.empty())
                                 return failure();
                               return emitKernel(function, domain, target.lanes);
                             });
}

} // namespace tbc::cpu

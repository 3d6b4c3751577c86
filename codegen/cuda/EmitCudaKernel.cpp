//===- EmitCudaKernel.cpp - Lower a function of tbc ops to GPU threads ------===//

#include "codegen/cuda/EmitCudaKernel.h"

#include "codegen/cuda/ExpandMath.h"
#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/KernelOp.h"
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
    int64_t perRow = domain.isVectorReduced ? warp : vectorSize / width;
    numThreads = domain.product(domain.rows) * perRow;
  }

  FailureOr<region::Kernel> run() {
    int64_t blocks = int64_t(llvm::divideCeil(uint64_t(numThreads), uint64_t(threadsPerBlock)));
    if (blocks > maxBlocks)
      return failure();
    region::Kernel kernel;
    kernel.module = ModuleOp::create(loc);
    kernel.extent = form == Form::Device ? blocks : numThreads;
    builder.setInsertionPointToEnd(kernel.module->getBody());
    lastRead.assign(function.getNumArguments(), -1);
    written.assign(returned().size(), 0);
    KernelFrame frame = openKernel(builder, loc, numBuffers(), numThreads, form);
    buffers = frame.buffers;
    emitThread(frame.thread);
    expandMath(*kernel.module);
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

  void emitThread(Value thread) {
    int64_t perRow = domain.isVectorReduced ? warp : vectorSize / width;
    Value row = e.make<arith::DivUIOp>(thread, integer(perRow));
    Value part = e.make<arith::RemUIOp>(thread, integer(perRow));
    splitIndex(domain.rows, row);
    position = e.mul(part, integer(width)); // first position of the lane
    lane = part;
    for (pass = 0; pass <= domain.numPasses; ++pass)
      if (Domain::Pass work = domain.passOf(function, pass); !work.isEmpty())
        emitPass(work);
    storeOnce();
  }

  /// Splits the linear `index` into the indices of `loops`; the last loop is the fastest.
  void splitIndex(ArrayRef<int> loops, Value index) {
    for (int i = int(loops.size()) - 1; i >= 0; --i) {
      Value size = integer(domain.sizes[loops[i]]);
      indices[loops[i]] = i == 0 ? index : e.make<arith::RemUIOp>(index, size);
      if (i > 0)
        index = e.make<arith::DivUIOp>(index, size);
    }
  }

  //===--------------------------------------------------------------------===//
  // Values: computed anew wherever they are needed; LLVM finds what is common
  //===--------------------------------------------------------------------===//

  /// Returns an element of `value`, or a vector of them, at the current indices.
  Value evaluate(Value value) {
    if (Value sum = sums.lookup(value))
      return sum;
    if (Value known = values.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (!op) {
      int argument = int(cast<BlockArgument>(value).getArgNumber());
      lastRead[argument] = std::max(lastRead[argument], pass);
      return values[value] = accessTo(value).load(buffers[argument], offsetOf(value),
                                                  isWide(value) ? width : 0, width);
    }
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
                        unsigned(elements * bytesOf(value)));
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

  void emitPass(const Domain::Pass &work) {
    SmallVector<Value> carried;
    for (Operation *reduction : work.reductions) {
      bool wide =
          width > 1 && (domain.isVectorReduced || domain.hasVector(reduction->getResult(0)));
      Type element = builder.getF32Type();
      carried.push_back(
          e.constant(wide ? Type(VectorType::get({width}, element)) : element,
                     isSum(reduction) ? 0.0 : -std::numeric_limits<double>::infinity()));
    }
    carried = overReduced(work, carried);
    for (auto [reduction, sum] : llvm::zip_equal(work.reductions, carried))
      sums[reduction->getResult(0)] =
          domain.isVectorReduced
              ? combineOverWarp(builder, loc, overLanes(reduction, sum), isSum(reduction), form)
              : sum;
  }

  SmallVector<Value> emitLoop(Value begin, int64_t end, int64_t step, ArrayRef<Value> carried,
                              llvm::function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) {
    OpBuilder::InsertionGuard guard(builder);
    auto loop = builder.create<scf::ForOp>(loc, begin, integer(end), integer(step), carried);
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
    return emitLoop(integer(0), reducedSize, 1, carried, [&](Value index, ArrayRef<Value> inner) {
      splitIndex(domain.reduced, index);
      return overRow(work, inner);
    });
  }

  SmallVector<Value> overRow(const Domain::Pass &work, ArrayRef<Value> carried) {
    if (!domain.isVectorReduced)
      return emitAt(work, carried);
    Value first = position;
    SmallVector<Value> result = emitLoop(first, vectorSize, int64_t(warp) * width, carried,
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
      next.push_back(isSum(reduction) ? e.add(sum, element) : e.larger(sum, element));
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

  /// Returns for each (result, operand) whether the result may lie over the operand. It may if
  /// every thread reads only the elements that it writes, and in no later pass than the write.
  /// Within a pass, `store` reads before it writes.
  std::vector<std::vector<bool>> mayOverwrite() {
    std::vector<std::vector<bool>> answer;
    for (auto [i, value] : llvm::enumerate(returned())) {
      std::vector<bool> &row = answer.emplace_back();
      bool isOwn = domain.hasVector(value) || numThreads == domain.product(domain.rows);
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
  int64_t vectorSize = 1, reducedSize = 1, numThreads = 1;

  SmallVector<Value> buffers;
  DenseMap<Value, Value> values; // at the current indices
  DenseMap<Value, Value> sums;   // results of reductions, for the whole row
  DenseMap<int, Value> indices;  // of loops outside of the vector's
  Value position, lane;          // along the vector's loops; in the warp
  int pass = 0;
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

//===----------------------------------------------------------------------===//
// Accumulators
//===----------------------------------------------------------------------===//

/// Returns the type of floats in kernels; null for other types.
static Type floatType(MLIRContext &context, kernels::DType dtype) {
  switch (dtype) {
  case kernels::DType::F32:
    return Float32Type::get(&context);
  case kernels::DType::BF16:
    return BFloat16Type::get(&context);
  case kernels::DType::F16:
    return Float16Type::get(&context);
  default:
    return {};
  }
}

std::optional<std::string> emitAccumulator(MLIRContext &context, const std::string &symbol,
                                           kernels::DType slot, kernels::DType value) {
  Type slotType = floatType(context, slot), valueType = floatType(context, value);
  if (!slotType || !valueType || (slotType != valueType && slot != kernels::DType::F32))
    return std::nullopt;
  OpBuilder builder(&context);
  Location loc = builder.getUnknownLoc();
  Elements e{builder, loc};
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  Type pointer = LLVM::LLVMPointerType::get(&context), i64 = builder.getI64Type();
  auto function = builder.create<func::FuncOp>(
      loc, symbol, builder.getFunctionType({pointer, pointer, i64}, {}));
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  Value first = globalThread(builder, loc);
  Value threads = e.mul(
      Value(e.make<arith::ExtUIOp>(i64, Value(e.make<NVVM::GridDimXOp>(builder.getI32Type())))),
      Value(e.make<arith::ExtUIOp>(i64, Value(e.make<NVVM::BlockDimXOp>(builder.getI32Type())))));
  auto loop = builder.create<scf::ForOp>(loc, first, entry->getArgument(2), threads);
  builder.create<func::ReturnOp>(loc);
  builder.setInsertionPoint(loop.getBody()->getTerminator());
  MemoryAccess slots(builder, loc, slotType), values(builder, loc, valueType);
  Value index = loop.getInductionVar();
  Value sum = e.add(slots.load(entry->getArgument(0), index, 0, 1),
                    values.load(entry->getArgument(1), index, 0, 1));
  slots.store(sum, entry->getArgument(0), index, 1);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  return text;
}

} // namespace tbc::cuda

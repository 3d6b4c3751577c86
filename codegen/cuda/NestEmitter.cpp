//===- NestEmitter.cpp - Code of the threads of a nest of loops -------------===//

#include "codegen/cuda/NestEmitter.h"

#include "codegen/region/LoopIndices.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

using region::Array;
using region::Combiner;
using region::Domain;
using region::KernelOpInterface;
using region::MemoryAccess;

static constexpr int64_t maxBlocks = std::numeric_limits<int32_t>::max();

int64_t bytesOfElement(Value value) {
  return std::max(8U, tensorType(value).getElementTypeBitWidth()) / 8;
}

/// Whether it calls functions of CUDA's libdevice: those with neither an instruction nor a
/// polynomial.
static bool needsLibrary(ModuleOp module) {
  bool found = false;
  module.walk([&](Operation *op) {
    bool isKnown =
        isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp, math::SqrtOp, math::RsqrtOp,
            math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::RoundOp,
            math::RoundEvenOp, math::TruncOp, math::CopySignOp, math::FmaOp>(op);
    found |= isa<math::MathDialect>(op->getDialect()) && !isKnown;
    // The polynomials are of f32.
    found |= isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp>(op) &&
             !getElementTypeOrSelf(op->getResult(0)).isF32();
    found |= isa<LLVM::SinOp, LLVM::CosOp, LLVM::PowOp, LLVM::PowIOp, LLVM::ExpOp, LLVM::Exp2Op,
                 LLVM::LogOp, LLVM::Log2Op, LLVM::Log10Op>(op);
  });
  return found;
}

NestEmitter::NestEmitter(func::FuncOp function, const Domain &domain, Form form)
    : function(function), domain(domain), form(form), builder(function.getContext()),
      loc(builder.getUnknownLoc()), e{builder, loc}, warp(form == Form::Device ? warpThreads : 1) {
  vectorSize = domain.product(domain.vector);
  reducedSize = domain.product(domain.reduced);
  chooseWidth();
  perRow = domain.isVectorReduced ? warp : vectorSize / width;
  numThreads = domain.product(domain.rows) * perRow;
}

FailureOr<region::Kernel> NestEmitter::run() {
  if (blocksOf(numThreads) > maxBlocks || !haveParameters(numBuffers() + (isInParts ? 1 : 0)))
    return failure();
  lastRead.assign(function.getNumArguments(), -1);
  written.assign(returned().size(), 0);
  region::Kernel kernel = emit();
  if (needsLibrary(*kernel.module))
    return failure();
  kernel.mayOverwrite = mayOverwrite();
  return kernel;
}

void NestEmitter::chooseWidth() {
  int64_t widest = 1;
  auto consider = [&](Value value) {
    if (domain.hasVector(value))
      widest = std::max(widest, bytesOfElement(value));
  };
  llvm::for_each(function.getArguments(), consider);
  llvm::for_each(returned(), consider);
  width = accessBytes / int(widest);
  if (domain.numPasses > 0)
    width = std::min(width, maxReducedWidth);
  while (vectorSize % width != 0)
    width /= 2;
}

int64_t NestEmitter::blocksOf(int64_t threads) const {
  return int64_t(llvm::divideCeil(uint64_t(threads), uint64_t(blockThreads)));
}

region::Kernel NestEmitter::open(int64_t threads) {
  region::Kernel launch;
  launch.module = ModuleOp::create(loc);
  launch.extent = form == Form::Device ? blocksOf(threads) : threads;
  launch.threads = isInParts ? blockThreads : 0;
  builder.setInsertionPointToEnd(launch.module->getBody());
  KernelFrame frame = openKernel(builder, loc, numBuffers() + (isInParts ? 1 : 0), threads, form);
  if (form == Form::Device && blockThreads > threadsPerBlock)
    allowThreads(*launch.module, blockThreads);
  buffers = frame.buffers, thread = frame.thread;
  values.clear(), constants.clear(), sums.clear(), indices.clear();
  return launch;
}

void NestEmitter::splitThread(Value number) {
  row = e.make<arith::DivUIOp>(number, integer(perRow));
  lane = e.make<arith::RemUIOp>(number, integer(perRow));
  splitIndex(domain.rows, row);
  position = e.mul(lane, integer(width));
}

void NestEmitter::splitIndex(ArrayRef<int> loops, Value index) {
  region::splitIndex(e, domain, loops, index, indices);
}

Value NestEmitter::evaluate(Value value) {
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

Value NestEmitter::load(BlockArgument argument) {
  const Array &array = domain.arrayOf(argument);
  return accessTo(argument, array)
      .load(buffers[size_t(array.buffer)], offsetOf(argument, array), isWide(argument) ? width : 0,
            width);
}

Value NestEmitter::splat(Value element) {
  if (width == 1 || isa<VectorType>(element.getType()))
    return element;
  return e.make<vector::SplatOp>(VectorType::get({width}, element.getType()), element);
}

Value NestEmitter::offsetOf(Value value, const Array &array) {
  Value offset = integer(array.first);
  for (auto [loop, stride] :
       llvm::zip_equal(domain.loops.lookup(value), domain.strides(value, array)))
    if (!llvm::is_contained(domain.vector, loop))
      offset = e.add(offset, e.mul(indices.lookup(loop), integer(stride)));
  return domain.hasVector(value) ? e.add(offset, position) : offset;
}

MemoryAccess NestEmitter::accessTo(Value value, const Array &array) {
  int64_t elements = isWide(value) ? width : 1;
  if (array.first % elements != 0)
    elements = 1;
  for (auto [loop, stride] :
       llvm::zip_equal(domain.loops.lookup(value), domain.strides(value, array)))
    if (!llvm::is_contained(domain.vector, loop) && stride % elements != 0)
      elements = 1;
  return MemoryAccess(builder, loc, tensorType(value).getElementType(),
                      unsigned(elements * bytesOfElement(value)), roundingOf(form));
}

void NestEmitter::store(ArrayRef<int> results) {
  SmallVector<Value> elements;
  for (int result : results) {
    Value element = evaluate(returned()[result]);
    elements.push_back(isWide(returned()[result]) ? splat(element) : element);
  }
  for (auto [result, element] : llvm::zip_equal(results, elements)) {
    Value value = returned()[result];
    const Array &array = domain.results[size_t(result)];
    accessTo(value, array)
        .store(element, buffers[size_t(domain.numOperands) + size_t(array.buffer)],
               offsetOf(value, array), width);
    written[result] = pass;
  }
}

bool NestEmitter::isSum(Operation *reduction) {
  return cast<KernelOpInterface>(reduction).getCombiner() == Combiner::Sum;
}

double NestEmitter::identityOf(Operation *reduction) {
  return isSum(reduction) ? 0.0 : -std::numeric_limits<double>::infinity();
}

SmallVector<Value> NestEmitter::identities(const Domain::Pass &work) {
  SmallVector<Value> list;
  for (Operation *reduction : work.reductions) {
    bool wide = width > 1 && (domain.isVectorReduced || domain.hasVector(reduction->getResult(0)));
    Type element = builder.getF32Type();
    list.push_back(e.constant(wide ? Type(VectorType::get({width}, element)) : element,
                              identityOf(reduction)));
  }
  return list;
}

Value NestEmitter::combine(Operation *reduction, Value x, Value y) {
  return isSum(reduction) ? e.add(x, y) : e.larger(x, y);
}

SmallVector<Value>
NestEmitter::emitLoop(Value begin, Value end, int64_t step, ArrayRef<Value> carried,
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

SmallVector<Value> NestEmitter::emitAt(const Domain::Pass &work, ArrayRef<Value> carried) {
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

Value NestEmitter::overLanes(Operation *reduction, Value sum) {
  if (!isa<VectorType>(sum.getType()))
    return sum;
  return builder.create<vector::ReductionOp>(
      loc, isSum(reduction) ? vector::CombiningKind::ADD : vector::CombiningKind::MAXIMUMF, sum,
      arith::FastMathFlags::reassoc | arith::FastMathFlags::nsz);
}

std::vector<std::vector<bool>> NestEmitter::mayOverwrite() {
  return domain.overwrites(function, [&](size_t i, BlockArgument argument) {
    Value value = returned()[i];
    bool isOwn = domain.hasVector(value) || numThreads == domain.product(domain.rows) ||
                 (isInParts && !domain.hasReduced(value));
    return isOwn && lastRead[argument.getArgNumber()] <= written[i];
  });
}

} // namespace tbc::cuda

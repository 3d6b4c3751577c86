//===- ThreadKernel.cpp - Kernels written thread by thread ------------------===//

#include "codegen/cuda/ThreadKernel.h"

#include "codegen/cuda/ExpandMath.h"
#include "codegen/region/MemoryAccess.h"
#include "ir/ElementTypes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;

/// Kernels have no f64 in memory.
static Type typeOf(MLIRContext &context, DType dtype) {
  assert(dtype != DType::F64 && isStorable(dtype));
  return elementTypeOf(dtype, &context);
}

/// Whether kernels support all types of the instruction.
static bool hasKernelTypes(const OpCall &call) {
  auto isKnown = [](const kernels::TensorType &type) { return type.dtype != DType::F64; };
  return llvm::all_of(call.operands, isKnown) && llvm::all_of(call.results, isKnown);
}

ThreadKernel::ThreadKernel(MLIRContext &context, const OpCall &call, int64_t numThreads, Form form)
    : call(call), builder(&context), loc(builder.getUnknownLoc()), e{builder, loc},
      numThreads(numThreads), form(form) {
  kernel.module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(kernel.module->getBody());
  KernelFrame frame = openKernel(builder, loc, call.numBuffers, numThreads, form);
  thread = frame.thread;
  buffers = frame.buffers;
}

FailureOr<region::Kernel> ThreadKernel::finish() {
  int64_t blocks = int64_t(llvm::divideCeil(uint64_t(numThreads), uint64_t(threadsPerBlock)));
  if (blocks > std::numeric_limits<int32_t>::max())
    return failure();
  expandMath(*kernel.module);
  kernel.extent = form == Form::Device ? blocks : numThreads;
  // Indexed by buffer; at least as large as the numbers of operands and results.
  kernel.mayOverwrite.assign(size_t(call.numBuffers),
                             std::vector<bool>(size_t(call.numBuffers), false));
  return std::move(kernel);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value ThreadKernel::integer(int64_t value) const { return e.make<arith::ConstantIntOp>(value, 64); }
Value ThreadKernel::number(double value) const {
  return e.constant(Float32Type::get(builder.getContext()), value);
}
Value ThreadKernel::divide(Value x, int64_t by) const {
  return by == 1 ? x : e.make<arith::DivUIOp>(x, integer(by));
}
Value ThreadKernel::remainder(Value x, int64_t by) const {
  return by == 1 ? integer(0) : e.make<arith::RemUIOp>(x, integer(by));
}

SmallVector<Value> ThreadKernel::split(Value index, ArrayRef<int64_t> sizes) const {
  SmallVector<Value> indices(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    indices[d] = d == 0 ? index : remainder(index, sizes[d]);
    index = d == 0 ? index : divide(index, sizes[d]);
  }
  return indices;
}

Value ThreadKernel::join(ArrayRef<Value> indices, ArrayRef<int64_t> sizes) const {
  Value offset = integer(0);
  for (auto [index, size] : llvm::zip_equal(indices, sizes))
    offset = e.add(e.mul(offset, integer(size)), index);
  return offset;
}

Value ThreadKernel::magnitudeBits(Value x) const {
  Value bits = e.make<arith::BitcastOp>(e.builder.getI32Type(), x);
  Value wide = e.make<arith::ExtUIOp>(e.builder.getI64Type(), bits);
  return e.make<arith::AndIOp>(wide, integer(0x7fffffff));
}

Value ThreadKernel::equal(Value a, Value b) const {
  return e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, a, b);
}
Value ThreadKernel::both(Value a, Value b) const { return e.make<arith::AndIOp>(a, b); }
Value ThreadKernel::negate(Value condition) const {
  return e.make<arith::XOrIOp>(condition, e.number(condition, 1));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

region::MemoryAccess ThreadKernel::accessTo(DType dtype, int64_t elements) const {
  return region::MemoryAccess(e.builder, e.loc, typeOf(*e.builder.getContext(), dtype),
                              unsigned(elements * kernels::byteWidth(dtype)), roundingOf(form));
}

Value ThreadKernel::load(int operand, Value offset) const {
  return accessTo(call.operands[size_t(operand)].dtype)
      .load(buffers[size_t(call.operandBuffers[size_t(operand)])], offset, 0, 1);
}
Value ThreadKernel::loadResult(int result, Value offset) const {
  return accessTo(call.results[size_t(result)].dtype)
      .load(buffers[size_t(call.resultBuffers[size_t(result)])], offset, 0, 1);
}
int64_t ThreadKernel::elementsTogether(DType dtype, ArrayRef<int64_t> runs) {
  constexpr int64_t accessBytes = 16;
  int64_t together = dtype == DType::Bool ? 1 : accessBytes / kernels::byteWidth(dtype);
  for (int64_t run : runs)
    while (run % together != 0)
      together /= 2;
  return together;
}

SmallVector<Value> ThreadKernel::loadTogether(DType dtype, int buffer, Value offset,
                                              int64_t count) const {
  if (count == 1)
    return {accessTo(dtype).load(buffers[size_t(buffer)], offset, 0, 1)};
  Value all = accessTo(dtype, count).load(buffers[size_t(buffer)], offset, int(count), int(count));
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(e.make<vector::ExtractOp>(all, i));
  return values;
}
SmallVector<Value> ThreadKernel::loadTogether(int operand, Value offset, int64_t count) const {
  return loadTogether(call.operands[size_t(operand)].dtype, call.operandBuffers[size_t(operand)],
                      offset, count);
}
SmallVector<Value> ThreadKernel::loadResultsTogether(int result, Value offset,
                                                     int64_t count) const {
  return loadTogether(call.results[size_t(result)].dtype, call.resultBuffers[size_t(result)],
                      offset, count);
}
Value ThreadKernel::address(bool isResult, int index, Value offset) const {
  DType dtype = (isResult ? call.results : call.operands)[size_t(index)].dtype;
  int buffer = (isResult ? call.resultBuffers : call.operandBuffers)[size_t(index)];
  return e.make<LLVM::GEPOp>(LLVM::LLVMPointerType::get(e.builder.getContext()),
                             typeOf(*e.builder.getContext(), dtype), buffers[size_t(buffer)],
                             ArrayRef<LLVM::GEPArg>{offset}, true);
}
void ThreadKernel::store(int result, Value offset, Value value) const {
  if (call.resultBuffers[size_t(result)] < 0)
    return;
  accessTo(call.results[size_t(result)].dtype)
      .store(value, buffers[size_t(call.resultBuffers[size_t(result)])], offset, 1);
}
void ThreadKernel::storeTogether(int result, Value offset, ArrayRef<Value> values) const {
  auto count = int64_t(values.size());
  if (count == 1)
    return store(result, offset, values[0]);
  Value together = e.constant(VectorType::get({count}, values[0].getType()), 0);
  for (int64_t i = 0; i < count; ++i)
    together = e.make<vector::InsertOp>(values[size_t(i)], together, i);
  accessTo(call.results[size_t(result)].dtype, count)
      .store(together, buffers[size_t(call.resultBuffers[size_t(result)])], offset, int(count));
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

SmallVector<Value> ThreadKernel::loop(Value begin, Value end, ArrayRef<Value> carried, Body body,
                                      int64_t step) const {
  OpBuilder &b = e.builder;
  OpBuilder::InsertionGuard guard(b);
  auto loop = b.create<scf::ForOp>(loc, begin, end, integer(step), carried);
  if (carried.empty())
    b.setInsertionPoint(loop.getBody()->getTerminator());
  else
    b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> inner(loop.getRegionIterArgs());
  SmallVector<Value> next = body(loop.getInductionVar(), inner);
  if (!carried.empty())
    b.create<scf::YieldOp>(loc, next);
  return SmallVector<Value>(loop.getResults());
}

void ThreadKernel::ifThen(Value condition, llvm::function_ref<void()> body) const {
  OpBuilder &b = e.builder;
  OpBuilder::InsertionGuard guard(b);
  auto branch = b.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

SmallVector<Value> ThreadKernel::choose(Value condition, llvm::function_ref<Values()> yes,
                                        llvm::function_ref<Values()> no) const {
  OpBuilder &b = e.builder;
  OpBuilder::InsertionGuard guard(b);
  auto branch = [&](llvm::function_ref<Values()> values) {
    return [&b, this, values](OpBuilder &inner, Location) {
      b.setInsertionPointToEnd(inner.getInsertionBlock());
      Values list = values();
      b.create<scf::YieldOp>(loc, list);
    };
  };
  auto chosen = b.create<scf::IfOp>(loc, condition, branch(yes), branch(no));
  return SmallVector<Value>(chosen.getResults());
}

void ThreadKernel::barrier() const {
  assert(form == Form::Device);
  e.builder.create<NVVM::Barrier0Op>(loc);
}

OpCall withWorkspace(OpCall call, ArrayRef<DType> types) {
  for (DType type : types) {
    call.results.push_back({type, {1}});
    call.resultBuffers.push_back(call.numBuffers);
  }
  ++call.numBuffers;
  return call;
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

FailureOr<region::Kernel> emitOpKernel(MLIRContext &context, const OpCall &call, Form form) {
  const int withWorkspace = call.numBuffers + 1;
  if (!hasKernelTypes(call) || !haveParameters(withWorkspace))
    return failure();
  for (const kernels::TensorType &type : call.results)
    if (kernels::numElements(type.shape) == 0)
      return failure();
  for (const OpKernelTable *table :
       {&attentionOpKernels(), &contractionOpKernels(), &expertOpKernels(), &indexingOpKernels(),
        &lossOpKernels(), &movementOpKernels(), &optimizerOpKernels(), &reductionOpKernels(),
        &vocabularyOpKernels(), &windowOpKernels()})
    if (auto found = table->find(call.op); found != table->end())
      return found->second(context, call, form);
  return failure();
}

} // namespace tbc::cuda

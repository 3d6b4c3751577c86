//===- KernelFrame.cpp - Function frame around the threads of a kernel ------===//

#include "codegen/cuda/KernelFrame.h"

#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace tbc::cuda {

Value globalThread(OpBuilder &builder, Location loc) {
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto wide = [&](Value value) { return builder.create<arith::ExtUIOp>(loc, i64, value); };
  Value block = wide(builder.create<NVVM::BlockIdXOp>(loc, i32));
  Value size = wide(builder.create<NVVM::BlockDimXOp>(loc, i32));
  Value first = builder.create<arith::MulIOp>(loc, block, size);
  return builder.create<arith::AddIOp>(loc, first,
                                       wide(builder.create<NVVM::ThreadIdXOp>(loc, i32)));
}

static Value integer(OpBuilder &builder, Location loc, int64_t value) {
  return builder.create<arith::ConstantIntOp>(loc, value, 64);
}

/// Begins the body of a thread in the kernel's first block.
static Value enterDeviceThread(OpBuilder &builder, Location loc, func::FuncOp kernel,
                               int64_t numThreads) {
  builder.setInsertionPointToEnd(&kernel.getBody().front());
  Value thread = globalThread(builder, loc);
  Value isThere = builder.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, thread,
                                                integer(builder, loc, numThreads));
  auto branch = builder.create<scf::IfOp>(loc, isThere, /*withElseRegion=*/false);
  builder.create<func::ReturnOp>(loc);
  builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  return thread;
}

static KernelFrame openDeviceKernel(OpBuilder &builder, Location loc, int numBuffers,
                                    int64_t numThreads) {
  KernelFrame frame;
  SmallVector<Type> pointers(size_t(numBuffers), LLVM::LLVMPointerType::get(builder.getContext()));
  auto kernel =
      builder.create<func::FuncOp>(loc, region::kKernelName, builder.getFunctionType(pointers, {}));
  Block *entry = kernel.addEntryBlock();
  frame.buffers.assign(entry->getArguments().begin(), entry->getArguments().end());
  frame.thread = enterDeviceThread(builder, loc, kernel, numThreads);
  return frame;
}

/// Creates a function of the host form; its first parameter is the array of addresses.
static func::FuncOp createHostKernel(OpBuilder &builder, Location loc) {
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto kernel = builder.create<func::FuncOp>(loc, region::kKernelName,
                                             builder.getFunctionType({pointer, i64, i64}, {}));
  builder.setInsertionPointToEnd(kernel.addEntryBlock());
  return kernel;
}

/// Begins the loop over the threads of a function of the host form.
static Value enterHostThread(OpBuilder &builder, Location loc, func::FuncOp kernel,
                             int64_t numThreads) {
  // Clamps to `numThreads`, as on a device: a kernel with another number of threads is another
  // function.
  Value end =
      builder.create<arith::MinSIOp>(loc, kernel.getArgument(2), integer(builder, loc, numThreads));
  auto loop = builder.create<scf::ForOp>(loc, kernel.getArgument(1), end, integer(builder, loc, 1));
  builder.create<func::ReturnOp>(loc);
  builder.setInsertionPoint(loop.getBody()->getTerminator());
  return loop.getInductionVar();
}

static KernelFrame openHostKernel(OpBuilder &builder, Location loc, int numBuffers,
                                  int64_t numThreads) {
  KernelFrame frame;
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  func::FuncOp kernel = createHostKernel(builder, loc);
  for (int i = 0; i < numBuffers; ++i) {
    Value at = builder.create<LLVM::GEPOp>(loc, pointer, pointer, kernel.getArgument(0),
                                           ArrayRef<LLVM::GEPArg>{i}, true);
    frame.buffers.push_back(builder.create<LLVM::LoadOp>(loc, pointer, at));
  }
  frame.thread = enterHostThread(builder, loc, kernel, numThreads);
  return frame;
}

KernelFrame openKernel(OpBuilder &builder, Location loc, int numBuffers, int64_t numThreads,
                       Form form) {
  return form == Form::Device ? openDeviceKernel(builder, loc, numBuffers, numThreads)
                              : openHostKernel(builder, loc, numBuffers, numThreads);
}

KernelFrame openArrayKernel(OpBuilder &builder, Location loc, int numAddresses, int64_t numThreads,
                            Form form) {
  if (form == Form::Host) {
    func::FuncOp kernel = createHostKernel(builder, loc);
    return {enterHostThread(builder, loc, kernel, numThreads), {kernel.getArgument(0)}};
  }
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto kernel =
      builder.create<func::FuncOp>(loc, region::kKernelName, builder.getFunctionType(pointer, {}));
  kernel.addEntryBlock();
  // An array by value: it lies in the memory of parameters, where all threads can index it.
  kernel.setArgAttr(0, LLVM::LLVMDialect::getByValAttrName(),
                    TypeAttr::get(LLVM::LLVMArrayType::get(pointer, unsigned(numAddresses))));
  kernel.setArgAttr(0, LLVM::LLVMDialect::getAlignAttrName(),
                    builder.getI64IntegerAttr(sizeof(uint64_t)));
  return {enterDeviceThread(builder, loc, kernel, numThreads), {kernel.getArgument(0)}};
}

bool haveParameters(int numBuffers) { return numBuffers <= program::maxArrayAddresses; }

void allowThreads(ModuleOp module, int threads) {
  func::FuncOp kernel = *module.getOps<func::FuncOp>().begin();
  kernel->setAttr(NVVM::NVVMDialect::getMaxntidAttrName(),
                  DenseI32ArrayAttr::get(module.getContext(), {threads}));
}

Value combineOverWarp(OpBuilder &builder, Location loc, Value x, bool isSum, Form form) {
  if (form == Form::Host)
    return x;
  region::Elements e{builder, loc};
  auto number = [&](int32_t value) {
    return Value(builder.create<arith::ConstantIntOp>(loc, value, 32));
  };
  for (int distance = warpThreads / 2; distance > 0; distance /= 2) {
    Value other =
        builder.create<NVVM::ShflOp>(loc, x.getType(), number(-1), x, number(distance),
                                     number(warpThreads - 1), NVVM::ShflKind::bfly, UnitAttr());
    x = isSum ? e.add(x, other) : e.larger(x, other);
  }
  return x;
}

region::Kernel joinLaunches(MutableArrayRef<region::Kernel> launches, int64_t workspaceBytes) {
  region::Kernel whole = std::move(launches.front());
  whole.workspaceBytes = workspaceBytes;
  for (region::Kernel &launch : launches.drop_front()) {
    func::FuncOp function = *launch.module->getOps<func::FuncOp>().begin();
    function->remove();
    whole.then.push_back({launch.extent, launch.threads});
    function.setName(region::symbolOfLaunch(region::kKernelName.str(), whole.then.size()));
    whole.module->push_back(function);
    for (auto global : llvm::make_early_inc_range(launch.module->getOps<LLVM::GlobalOp>())) {
      global->remove();
      if (whole.module->lookupSymbol(global.getSymName()))
        global->destroy();
      else
        whole.module->getBody()->push_front(global);
    }
  }
  return whole;
}

} // namespace tbc::cuda

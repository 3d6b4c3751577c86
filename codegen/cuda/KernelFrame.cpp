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

static KernelFrame openDeviceKernel(OpBuilder &builder, Location loc, int numBuffers,
                                    int64_t numThreads) {
  KernelFrame frame;
  SmallVector<Type> pointers(size_t(numBuffers), LLVM::LLVMPointerType::get(builder.getContext()));
  auto kernel =
      builder.create<func::FuncOp>(loc, region::kKernelName, builder.getFunctionType(pointers, {}));
  Block *entry = kernel.addEntryBlock();
  frame.buffers.assign(entry->getArguments().begin(), entry->getArguments().end());
  builder.setInsertionPointToEnd(entry);
  frame.thread = globalThread(builder, loc);
  Value isThere = builder.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, frame.thread,
                                                integer(builder, loc, numThreads));
  auto branch = builder.create<scf::IfOp>(loc, isThere, /*withElseRegion=*/false);
  builder.create<func::ReturnOp>(loc);
  builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  return frame;
}

static KernelFrame openHostKernel(OpBuilder &builder, Location loc, int numBuffers,
                                  int64_t numThreads) {
  KernelFrame frame;
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto kernel = builder.create<func::FuncOp>(loc, region::kKernelName,
                                             builder.getFunctionType({pointer, i64, i64}, {}));
  Block *entry = kernel.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  for (int i = 0; i < numBuffers; ++i) {
    Value at = builder.create<LLVM::GEPOp>(loc, pointer, pointer, entry->getArgument(0),
                                           ArrayRef<LLVM::GEPArg>{i}, true);
    frame.buffers.push_back(builder.create<LLVM::LoadOp>(loc, pointer, at));
  }
  // Clamps to `numThreads`, as on a device: a kernel with another number of threads is another
  // function.
  Value end =
      builder.create<arith::MinSIOp>(loc, entry->getArgument(2), integer(builder, loc, numThreads));
  auto loop = builder.create<scf::ForOp>(loc, entry->getArgument(1), end, integer(builder, loc, 1));
  builder.create<func::ReturnOp>(loc);
  builder.setInsertionPoint(loop.getBody()->getTerminator());
  frame.thread = loop.getInductionVar();
  return frame;
}

KernelFrame openKernel(OpBuilder &builder, Location loc, int numBuffers, int64_t numThreads,
                       Form form) {
  return form == Form::Device ? openDeviceKernel(builder, loc, numBuffers, numThreads)
                              : openHostKernel(builder, loc, numBuffers, numThreads);
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
    x = isSum          ? e.add(x, other)
        : e.isFloat(x) ? Value(e.make<arith::MaxNumFOp>(x, other))
                       : Value(e.make<arith::MaxSIOp>(x, other));
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

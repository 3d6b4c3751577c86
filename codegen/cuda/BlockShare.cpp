//===- BlockShare.cpp - What threads of a block and blocks of a launch share ===//

#include "codegen/cuda/BlockShare.h"

#include "codegen/cuda/KernelFrame.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <string>

using namespace mlir;

namespace tbc::cuda {

static constexpr llvm::StringLiteral memoryName = "tbc_block_floats";
static constexpr unsigned globalSpace = NVVM::kGlobalMemorySpace, accessBytes = 16;

BlockShare::BlockShare(ModuleOp module, OpBuilder &builder, Location loc, Value inBlock)
    : module(module), builder(builder), loc(loc), e{builder, loc}, inBlock(inBlock) {}

void BlockShare::addGlobal(StringRef name, Type type, Attribute value, unsigned space) {
  if (module.lookupSymbol(name))
    return;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(module.getBody());
  builder.create<LLVM::GlobalOp>(loc, type, /*isConstant=*/false, LLVM::Linkage::Internal, name,
                                 value, accessBytes, space);
}

Value BlockShare::memory() {
  addGlobal(memoryName, LLVM::LLVMArrayType::get(builder.getF32Type(), numFloats), Attribute(),
            NVVM::kSharedMemorySpace);
  return e.make<LLVM::AddressOfOp>(
      LLVM::LLVMPointerType::get(builder.getContext(), NVVM::kSharedMemorySpace), memoryName);
}

void BlockShare::barrier() { builder.create<NVVM::Barrier0Op>(loc); }

Value BlockShare::overLines(Value first, int64_t count, int64_t step, size_t number,
                            Combine combine) {
  region::MemoryAccess floats(builder, loc, builder.getF32Type());
  Value all;
  for (int64_t line = 0; line < count; ++line) {
    Value one = floats.load(memory(), e.add(first, e.number(first, line * step)), 0, 1);
    all = line == 0 ? one : combine(number, all, one);
  }
  return all;
}

SmallVector<Value> BlockShare::overWarps(ArrayRef<Value> values, Value lane, int64_t warps,
                                         Value first, Combine combine) {
  if (warps == 1)
    return SmallVector<Value>(values);
  {
    Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, lane, e.number(lane, 0));
    auto branch = builder.create<scf::IfOp>(loc, isFirst, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    region::MemoryAccess floats(builder, loc, builder.getF32Type());
    Value warp = e.make<arith::DivUIOp>(inBlock, e.number(inBlock, warpThreads));
    Value ofWarp = e.add(first, warp);
    for (auto [number, value] : llvm::enumerate(values))
      floats.store(value, memory(), e.add(ofWarp, e.number(ofWarp, int64_t(number) * warps)), 1);
  }
  barrier();
  SmallVector<Value> all;
  for (size_t number = 0; number < values.size(); ++number)
    all.push_back(overLines(e.add(first, e.number(first, int64_t(number) * warps)), warps, 1,
                            number, combine));
  return all;
}

void BlockShare::fence() {
  builder.create<LLVM::CallIntrinsicOp>(loc, /*results=*/Type(), "llvm.nvvm.membar.gl",
                                        ValueRange());
}

Value BlockShare::isLastOf(Value group, int64_t numGroups, int64_t numBlocks) {
  // Kernels with as many groups have the same counters.
  std::string name = "tbc_arrivals_" + std::to_string(numGroups);
  Type i32 = builder.getI32Type();
  addGlobal(name, LLVM::LLVMArrayType::get(i32, unsigned(numGroups)),
            DenseElementsAttr::get(RankedTensorType::get({numGroups}, i32), int32_t(0)),
            globalSpace);
  auto number = [&](int64_t value) { return e.make<arith::ConstantIntOp>(value, 32); };
  barrier();
  Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, inBlock, e.number(inBlock, 0));
  auto branch = builder.create<scf::IfOp>(loc, TypeRange{i32}, isFirst, /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(branch.thenBlock());
    Type pointer = LLVM::LLVMPointerType::get(builder.getContext(), globalSpace);
    Value counters = e.make<LLVM::AddressOfOp>(pointer, name);
    Value counter = e.make<LLVM::GEPOp>(pointer, i32, counters, ArrayRef<LLVM::GEPArg>{group},
                                        /*inbounds=*/true);
    fence();
    Value before = e.make<LLVM::CallIntrinsicOp>(i32, "llvm.nvvm.atomic.load.inc.32",
                                                 ValueRange{counter, number(numBlocks - 1)});
    fence();
    Value isLast = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, before, number(numBlocks - 1));
    builder.create<scf::YieldOp>(loc, Value(e.make<arith::ExtUIOp>(i32, isLast)));
    builder.setInsertionPointToEnd(branch.elseBlock());
    builder.create<scf::YieldOp>(loc, number(0));
  }
  // A barrier, with the bits of all threads or-ed.
  Value any =
      e.make<LLVM::CallIntrinsicOp>(i32, "llvm.nvvm.barrier0.or", ValueRange{branch.getResult(0)});
  return e.make<arith::CmpIOp>(arith::CmpIPredicate::ne, any, number(0));
}

} // namespace tbc::cuda

//===- EmitAccumulator.cpp - Kernels that add to slots ---------------------===//

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/MemoryAccess.h"
#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace tbc::cuda {

using region::Elements;
using region::MemoryAccess;

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
  MemoryAccess slots(builder, loc, slotType, 1, roundingOf(Form::Device)),
      values(builder, loc, valueType);
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

//===- TensorCores.cpp - Matmuls of a warp by its tensor cores --------------===//

#include "codegen/cuda/TensorCores.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;

/// Kernels of one image share a name, so sizes have names of their own.
static std::string nameOfTiles(int64_t bytes) { return "tile_memory_" + std::to_string(bytes); }

void TensorCores::addTiles(const ThreadKernel &k, int64_t bytes) {
  constexpr uint64_t alignment = 16;
  OpBuilder &b = k.e.builder;
  OpBuilder::InsertionGuard guard(b);
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  b.setInsertionPointToStart(module.getBody());
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), unsigned(bytes));
  b.create<LLVM::GlobalOp>(k.loc, type, /*isConstant=*/false, LLVM::Linkage::Internal,
                           nameOfTiles(bytes), Attribute(), alignment, NVVM::kSharedMemorySpace);
}

TensorCores::TensorCores(const ThreadKernel &k, DType dtype, int64_t tileBytes)
    : thread(k.remainder(k.thread, threadsPerBlock)), lane(k.remainder(thread, warpThreads)),
      quad(k.divide(lane, 4)), inQuad(k.remainder(lane, 4)), k(k), dtype(dtype),
      shared(LLVM::LLVMPointerType::get(k.e.builder.getContext(), NVVM::kSharedMemorySpace)),
      memory(k.e.make<LLVM::AddressOfOp>(shared, nameOfTiles(tileBytes))) {}

Value TensorCores::tileAddress(Value bytes) const {
  return k.e.make<LLVM::GEPOp>(shared, k.e.builder.getI8Type(), memory,
                               ArrayRef<LLVM::GEPArg>{bytes}, true);
}

TensorCores::Values TensorCores::loadMatrices(Value address, bool isTransposed) const {
  Type i32 = k.e.builder.getI32Type();
  auto four = LLVM::LLVMStructType::getLiteral(k.e.builder.getContext(), {i32, i32, i32, i32});
  Value loaded = k.e.make<NVVM::LdMatrixOp>(
      four, address, uint32_t(4), isTransposed ? NVVM::MMALayout::col : NVVM::MMALayout::row);
  Values parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(k.e.make<LLVM::ExtractValueOp>(loaded, ArrayRef<int64_t>{i}));
  return parts;
}

void TensorCores::multiply(ArrayRef<Value> a, ArrayRef<Value> right,
                           MutableArrayRef<Value> sums) const {
  OpBuilder &b = k.e.builder;
  bool isHalf = dtype == DType::F16;
  auto operandsOf = [&](ArrayRef<Value> raw) {
    Values operands(raw);
    if (isHalf)
      for (Value &operand : operands)
        operand = k.e.make<LLVM::BitcastOp>(VectorType::get({2}, b.getF16Type()), operand);
    return operands;
  };
  // NVVM::MmaOp takes no fragments of bf16 (its verifier wants vector<2xf16>).
  const char *intrinsic =
      isHalf ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32" : "llvm.nvvm.mma.m16n8k16.row.col.bf16";
  Type f32 = b.getF32Type();
  auto four = LLVM::LLVMStructType::getLiteral(b.getContext(), {f32, f32, f32, f32});
  Values arguments = operandsOf(a);
  llvm::append_range(arguments, operandsOf(right));
  llvm::append_range(arguments, sums);
  Value made =
      b.create<LLVM::CallIntrinsicOp>(k.loc, TypeRange{four}, intrinsic, arguments)->getResult(0);
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = k.e.make<LLVM::ExtractValueOp>(made, ArrayRef<int64_t>{int64_t(i)});
}

Value TensorCores::pack(Value lower, Value upper) const {
  OpBuilder &b = k.e.builder;
  Type pair = VectorType::get({2}, dtype == DType::F16 ? Type(b.getF16Type()) : b.getBF16Type());
  Value rounded;
  if (dtype == DType::F16) {
    rounded = k.e.constant(VectorType::get({2}, b.getF32Type()), 0);
    rounded = k.e.make<vector::InsertOp>(lower, rounded, int64_t(0));
    rounded = k.e.make<vector::InsertOp>(upper, rounded, int64_t(1));
    rounded = k.e.make<arith::TruncFOp>(pair, rounded);
  } else {
    // PTX ISA, cvt: "input a is converted and stored in the upper half of d".
    rounded = b.create<LLVM::CallIntrinsicOp>(k.loc, pair, StringRef("llvm.nvvm.ff2bf16x2.rn"),
                                              ValueRange{upper, lower})
                  .getResult(0);
  }
  return k.e.make<LLVM::BitcastOp>(b.getI32Type(), rounded);
}

Value TensorCores::overQuad(Value x, bool isSum) const {
  OpBuilder &b = k.e.builder;
  auto word = [&](int32_t value) {
    return Value(b.create<arith::ConstantIntOp>(k.loc, value, 32));
  };
  for (int distance : {1, 2}) {
    Value other = b.create<NVVM::ShflOp>(k.loc, x.getType(), word(-1), x, word(distance),
                                         word(warpThreads - 1), NVVM::ShflKind::bfly, UnitAttr());
    x = isSum ? k.e.add(x, other) : k.e.larger(x, other);
  }
  return x;
}

} // namespace tbc::cuda

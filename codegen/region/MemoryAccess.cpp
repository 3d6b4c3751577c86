//===- MemoryAccess.cpp - Load and store elements in kernels ----------------===//

#include "codegen/region/MemoryAccess.h"

#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tbc::region {

static Type storageOf(Type element) {
  if (element.isBF16())
    return IntegerType::get(element.getContext(), 16);
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), std::max(8U, integer.getWidth()));
  return element;
}

static unsigned bytesOf(Type storage) { return storage.getIntOrFloatBitWidth() / 8; }

MemoryAccess::MemoryAccess(OpBuilder &builder, Location loc, Type element, unsigned alignment,
                           BFloatRounding rounding)
    : builder(builder), loc(loc), element(element), storage(storageOf(element)),
      alignment(std::max(bytesOf(storage), alignment)), rounding(rounding) {}

bool MemoryAccess::isSupported(Type element) {
  return element.isF32() || element.isBF16() || element.isF16() || isa<IntegerType>(element);
}

Value makeMask(OpBuilder &builder, Location loc, int width, int valid) {
  SmallVector<bool> bits(width, false);
  std::fill_n(bits.begin(), valid, true);
  auto type = VectorType::get({width}, builder.getI1Type());
  return builder.create<arith::ConstantOp>(loc, DenseElementsAttr::get(type, bits));
}

Value MemoryAccess::address(Value pointer, Value offset) const {
  return builder.create<LLVM::GEPOp>(loc, pointer.getType(), storage, pointer,
                                     ArrayRef<LLVM::GEPArg>{offset}, /*inbounds=*/true);
}

Value MemoryAccess::load(Value pointer, Value offset, int width, int valid) const {
  Value at = address(pointer, offset);
  if (width == 0)
    return widen(builder.create<LLVM::LoadOp>(loc, storage, at, alignment));
  Type type = VectorType::get({width}, storage);
  if (valid == width)
    return widen(builder.create<LLVM::LoadOp>(loc, type, at, alignment));
  Elements e{builder, loc};
  return widen(builder.create<LLVM::MaskedLoadOp>(
      loc, type, at, makeMask(builder, loc, width, valid), e.constant(type, 0), alignment));
}

void MemoryAccess::store(Value value, Value pointer, Value offset, int valid) const {
  Value stored = narrow(value), at = address(pointer, offset);
  auto vector = dyn_cast<VectorType>(value.getType());
  bool isPart = vector && valid != vector.getDimSize(0);
  assert((!isPart || rounding == BFloatRounding::Integers) &&
         "kernels of GPUs store whole vectors");
  if (isPart)
    builder.create<LLVM::MaskedStoreOp>(
        loc, stored, at, makeMask(builder, loc, int(vector.getDimSize(0)), valid), alignment);
  else
    builder.create<LLVM::StoreOp>(loc, stored, at, alignment);
}

Value MemoryAccess::widen(Value x) const {
  Elements e{builder, loc};
  auto as = [&](Type type) { return Elements::typeLike(x, type); };
  if (element.isF32() || element.isInteger(64))
    return x;
  if (element.isF16())
    return e.make<arith::ExtFOp>(as(builder.getF32Type()), x);
  if (element.isBF16()) {
    Value bits = e.make<arith::ExtUIOp>(as(builder.getI32Type()), x);
    bits = e.make<arith::ShLIOp>(bits, e.number(bits, 16));
    return e.make<arith::BitcastOp>(as(builder.getF32Type()), bits);
  }
  if (element.isInteger(1))
    return e.make<arith::CmpIOp>(arith::CmpIPredicate::ne, x, e.number(x, 0));
  if (element.isUnsignedInteger())
    return e.make<arith::ExtUIOp>(as(builder.getI64Type()), x);
  return e.make<arith::ExtSIOp>(as(builder.getI64Type()), x);
}

/// Rounds to nearest, ties to even, as the reference does. The bf16 instructions of some CPUs are
/// not used, as they flush subnormal numbers to zero.
Value MemoryAccess::roundToBFloat(Value x) const {
  Elements e{builder, loc};
  Type word = Elements::typeLike(x, builder.getI32Type());
  Value bits = e.make<arith::BitcastOp>(word, x);
  Value upper = e.make<arith::ShRUIOp>(bits, e.number(bits, 16));
  Value odd = e.make<arith::AndIOp>(upper, e.number(bits, 1));
  Value rounded = e.add(bits, e.add(odd, e.number(bits, 0x7fff)));
  rounded = e.make<arith::ShRUIOp>(rounded, e.number(bits, 16));
  Value isNan = e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
  Value quiet = e.make<arith::OrIOp>(upper, e.number(bits, 0x40));
  return e.make<arith::TruncIOp>(Elements::typeLike(x, storage), e.select(isNan, quiet, rounded));
}

/// Returns a bf16, or for a vector of f32 pairs of them as words. The first of a pair is the lower
/// half (PTX ISA, cvt: "input a is converted and stored in the upper half of d").
Value MemoryAccess::roundByInstruction(Value x) const {
  auto call = [&](Type type, const char *name, ValueRange operands) -> Value {
    return builder.create<LLVM::CallIntrinsicOp>(loc, type, StringRef(name), operands).getResult(0);
  };
  Type word = builder.getI32Type();
  auto vector = dyn_cast<VectorType>(x.getType());
  if (!vector)
    return call(builder.getBF16Type(), "llvm.nvvm.f2bf16.rn", x);
  Elements e{builder, loc};
  int64_t numWords = vector.getDimSize(0) / 2;
  Value words = e.constant(VectorType::get({numWords}, word), 0);
  for (int64_t i = 0; i < numWords; ++i) {
    Value lower = e.make<vector::ExtractOp>(x, 2 * i),
          upper = e.make<vector::ExtractOp>(x, 2 * i + 1);
    Value pair =
        call(VectorType::get({2}, builder.getBF16Type()), "llvm.nvvm.ff2bf16x2.rn", {upper, lower});
    words = e.make<vector::InsertOp>(Value(e.make<LLVM::BitcastOp>(word, pair)), words, i);
  }
  return words;
}

Value MemoryAccess::narrow(Value x) const {
  Elements e{builder, loc};
  Type type = Elements::typeLike(x, storage);
  if (element.isBF16())
    return rounding == BFloatRounding::CudaInstruction ? roundByInstruction(x) : roundToBFloat(x);
  if (element.isF16())
    return e.make<arith::TruncFOp>(type, x);
  if (element.isInteger(1))
    return e.make<arith::ExtUIOp>(type, x);
  return x.getType() == type ? x : e.make<arith::TruncIOp>(type, x);
}

} // namespace tbc::region

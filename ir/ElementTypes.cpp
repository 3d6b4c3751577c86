//===- ElementTypes.cpp - Element types of MLIR and dtypes -----------------===//

#include "ir/ElementTypes.h"

#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace tbc {

std::optional<DType> dtypeOf(Type elementType) {
  for (DType dtype : dtypes())
    if (elementTypeOf(dtype, elementType.getContext()) == elementType)
      return dtype;
  return std::nullopt;
}

Type elementTypeOf(DType dtype, MLIRContext *context) {
  switch (dtype) {
  case DType::F64:
    return Float64Type::get(context);
  case DType::F32:
    return Float32Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::F16:
    return Float16Type::get(context);
  case DType::F8E4M3:
    return Float8E4M3FNType::get(context);
  case DType::F8E5M2:
    return Float8E5M2Type::get(context);
  case DType::I64:
    return IntegerType::get(context, 64);
  case DType::I32:
    return IntegerType::get(context, 32);
  case DType::I16:
    return IntegerType::get(context, 16);
  case DType::I8:
    return IntegerType::get(context, 8);
  case DType::U8:
    return IntegerType::get(context, 8, IntegerType::Unsigned);
  case DType::U16:
    return IntegerType::get(context, 16, IntegerType::Unsigned);
  case DType::U32:
    return IntegerType::get(context, 32, IntegerType::Unsigned);
  case DType::Bool:
    return IntegerType::get(context, 1);
  }
  llvm_unreachable("every dtype has an element type");
}

} // namespace tbc

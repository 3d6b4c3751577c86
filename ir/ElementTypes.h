//===- ElementTypes.h - Element types of MLIR and dtypes -------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_ELEMENTTYPES_H
#define TBC_IR_ELEMENTTYPES_H

#include "runtime/dtype/DType.h"

#include "mlir/IR/Types.h"

#include <optional>

namespace tbc {

/// Returns the dtype of an element type; nullopt for a type outside of tbc. Example: bf16 is BF16,
/// ui8 is U8, i1 is Bool; i4 and index have none.
std::optional<DType> dtypeOf(mlir::Type elementType);

/// The inverse of dtypeOf().
mlir::Type elementTypeOf(DType dtype, mlir::MLIRContext *context);

} // namespace tbc

#endif // TBC_IR_ELEMENTTYPES_H

//===- MemoryAccess.h - Load and store elements in kernels ------------------===//

#ifndef TBC_CODEGEN_REGION_MEMORYACCESS_H
#define TBC_CODEGEN_REGION_MEMORYACCESS_H

#include "mlir/IR/Builders.h"

namespace tbc::region {

/// How f32 is rounded to bf16, to nearest, ties to even. Both give the same bits, but for NaN:
/// an instruction may drop its payload.
enum class BFloatRounding {
  Integers,
  /// `cvt.rn.bf16x2` of sm_80 and later; two elements each.
  CudaInstruction,
};

/// Loads and stores elements of one type. Converts between the form in memory (bf16 as 2 bytes,
/// booleans as 1) and the form in kernels (f32, i64, i1).
class MemoryAccess {
public:
  /// `element`: the element type of a tensor of tbc; f64 is not supported. `alignment`: bytes, a
  /// guaranteed alignment of all accesses beyond that of an element.
  MemoryAccess(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type element,
               unsigned alignment = 1, BFloatRounding rounding = BFloatRounding::Integers);

  /// Loads from `offset` elements (i64) after `pointer`. `width` 0 gives a scalar, else a vector of
  /// `width` lanes; only the first `valid` lanes are read, the others are 0.
  mlir::Value load(mlir::Value pointer, mlir::Value offset, int width, int valid) const;
  /// The inverse of `load`: stores only the first `valid` lanes.
  void store(mlir::Value value, mlir::Value pointer, mlir::Value offset, int valid) const;

  static bool isSupported(mlir::Type element);

private:
  mlir::Value address(mlir::Value pointer, mlir::Value offset) const;
  mlir::Value widen(mlir::Value stored) const;
  mlir::Value narrow(mlir::Value value) const;
  mlir::Value roundToBFloat(mlir::Value value) const;
  mlir::Value roundByInstruction(mlir::Value value) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Type element;
  mlir::Type storage; // integers of the same width for floats without machine support
  unsigned alignment; // bytes
  BFloatRounding rounding;
};

/// Lanes 0 .. valid - 1 of `width`.
mlir::Value makeMask(mlir::OpBuilder &builder, mlir::Location loc, int width, int valid);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_MEMORYACCESS_H

//===- MemoryAccess.h - Elements of kernels in memory -----------------------===//

#ifndef TBC_CODEGEN_CPU_MEMORYACCESS_H
#define TBC_CODEGEN_CPU_MEMORYACCESS_H

#include "mlir/IR/Builders.h"

namespace tbc::cpu {

/// Reads and writes elements of one type: as they lie in memory (bf16 as 2 bytes, booleans as 1),
/// and as kernels compute with them (f32, i64, i1).
class MemoryAccess {
public:
  /// `element`: of a tensor of tbc. f64 has none. `alignment`: bytes to whose multiples all that is
  /// accessed is aligned, if more than those of an element.
  MemoryAccess(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type element,
               unsigned alignment = 1);

  /// What begins `offset` elements (i64) behind `pointer`: a scalar where `width` is 0, else a
  /// vector of `width`, of which only the first `valid` are read; the others are 0.
  mlir::Value load(mlir::Value pointer, mlir::Value offset, int width, int valid) const;
  /// The inverse; writes only the first `valid`.
  void store(mlir::Value value, mlir::Value pointer, mlir::Value offset, int valid) const;

  static bool isSupported(mlir::Type element);

private:
  mlir::Value address(mlir::Value pointer, mlir::Value offset) const;
  mlir::Value widen(mlir::Value stored) const;
  mlir::Value narrow(mlir::Value value) const;
  mlir::Value roundToBFloat(mlir::Value value) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Type element;
  mlir::Type storage; // integers of the same width for what is no float of the machine
  unsigned alignment; // bytes
};

/// Lanes 0 .. valid - 1 of `width`.
mlir::Value makeMask(mlir::OpBuilder &builder, mlir::Location loc, int width, int valid);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_MEMORYACCESS_H

//===- Philox.h - Random numbers in compiled kernels ------------------------===//

#ifndef TBC_CODEGEN_REGION_OPS_PHILOX_H
#define TBC_CODEGEN_REGION_OPS_PHILOX_H

#include "codegen/region/ops/Elements.h"

namespace tbc::region {

/// Whether dropout of this ratio keeps element `number` (i64, a scalar or a vector) in step `step`
/// (an i64 scalar). Makes the same decisions as `tbc::kernels::DropoutMask`.
mlir::Value keepsElement(const Elements &e, mlir::Value number, mlir::Value step, int64_t key,
                         int64_t seed, double ratio);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_OPS_PHILOX_H

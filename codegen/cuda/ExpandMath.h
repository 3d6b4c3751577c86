//===- ExpandMath.h - Functions that GPUs have no instruction for -----------===//

#ifndef TBC_CODEGEN_CUDA_EXPANDMATH_H
#define TBC_CODEGEN_CUDA_EXPANDMATH_H

#include "mlir/IR/BuiltinOps.h"

namespace tbc::cuda {

/// Replaces, in all functions of `module`, what CUDA has in its libdevice only by arithmetic in
/// f64: sin, cos and pow of f32, scalars or vectors, and exp of f64.
///
/// Errors, beside the rounding of the result: exp of f64 2 ulps, 0 below the normal numbers; sin
/// and cos less than one ulp up to 2^40, nothing is promised beyond; pow 1 ulp, with the special
/// cases of C's pow (ISO C11 F.10.4.4).
///
/// Source: reduction and polynomials as in Cody and Waite, Software Manual for the Elementary
/// Functions (1980); those of Taylor, which is enough for f32 in f64.
void expandMath(mlir::ModuleOp module);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EXPANDMATH_H

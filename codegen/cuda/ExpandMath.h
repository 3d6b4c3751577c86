//===- ExpandMath.h - Polynomials for functions without a GPU instruction ---===//

#ifndef TBC_CODEGEN_CUDA_EXPANDMATH_H
#define TBC_CODEGEN_CUDA_EXPANDMATH_H

#include "mlir/IR/BuiltinOps.h"

namespace tbc::cuda {

/// Replaces functions that CUDA has only in libdevice by arithmetic in f64, in all functions of
/// `module`: sin, cos and pow of f32, scalars or vectors, and exp of f64.
///
/// Errors, beside the rounding of the result:
///   - exp of f64: 2 ulps; 0 below the normal numbers.
///   - sin and cos: less than one ulp, also of large arguments; NaN of infinities.
///   - pow: 1 ulp, with the special cases of C's pow (ISO C11 F.10.4.4).
///
/// Source: reduction and polynomials as in Cody and Waite, Software Manual for the Elementary
/// Functions (1980). The polynomials are Taylor's, which are accurate enough for f32 computed in
/// f64.
void expandMath(mlir::ModuleOp module);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EXPANDMATH_H

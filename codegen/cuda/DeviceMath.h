//===- DeviceMath.h - Functions of f32 by instructions of a GPU -------------===//

#ifndef TBC_CODEGEN_CUDA_DEVICEMATH_H
#define TBC_CODEGEN_CUDA_DEVICEMATH_H

#include "codegen/region/ops/Elements.h"

#include "mlir/IR/BuiltinOps.h"

namespace tbc::cuda {

/// Factors between exponents of e and 2.
inline constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;

/// Returns 2^x of an f32 by one instruction, within 2 units in the last place (PTX ISA,
/// ex2.approx); 0 for -infinity.
mlir::Value powerOfTwo(const region::Elements &e, mlir::Value x);

/// Replaces exp, tanh and erf of f32 by some ten instructions each, in place of the twenty to forty
/// of polynomials for CPUs. `ex2.approx` is within 2 units in the last place (ulp), `rcp.approx`
/// within 1 (PTX ISA). With u = 2^-24, half a ulp of 1, results are
///
/// - exp(x): within 8 u of themselves, also where subnormal; 0 below -150, infinity above 150;
/// - tanh(x), erf(x): within 16 u of themselves.
///
/// NaN stays NaN. Example: a gelu of bf16 elements has 2 bytes in and out, so that an H100 may
/// execute 47 instructions of a thread for it at the speed of memory.
void useDeviceMath(mlir::ModuleOp module);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_DEVICEMATH_H

//===- EmitKernel.h - Lower a function of tbc ops to loops over vectors -----===//

#ifndef TBC_CODEGEN_CPU_EMITKERNEL_H
#define TBC_CODEGEN_CPU_EMITKERNEL_H

#include "codegen/cpu/CpuTarget.h"
#include "codegen/region/FormRegions.h"

namespace tbc::cpu {

using region::Domain;
using region::Kernel;
using region::KernelSource;

/// Returns the kernel that computes the results of `function`. Its function is
/// kernel(buffers, begin, end), see runtime/abi/CompiledKernel.h. `lanes`: number of f32 in a
/// vector register of the CPU. Example: 8 for AVX2.
///
/// Arithmetic: f32 for all narrower floats, rounded when stored; sums in f32, first in each lane,
/// then over the lanes. The order of a sum depends on shapes and `lanes` alone.
Kernel emitKernel(mlir::func::FuncOp function, const Domain &domain, int lanes);

/// Compiles the regions of every block of `program` for `target` (region::formRegions).
region::RegionKernels formRegions(program::Program &program, const EmittedOps &origins,
                                  const CpuTarget &target);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_EMITKERNEL_H

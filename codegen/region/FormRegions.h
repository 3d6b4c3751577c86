//===- FormRegions.h - Choose the kernels of a Program to compile together --===//

#ifndef TBC_CODEGEN_REGION_FORMREGIONS_H
#define TBC_CODEGEN_REGION_FORMREGIONS_H

#include "codegen/EmitProgram.h"
#include "codegen/region/Kernel.h"

namespace tbc::region {

/// Gives every block of `program` its regions. Returns the distinct functions of these regions, in
/// the order of their first use. `origins`: from `emitProgram`; its context must be prepared
/// (`prepareContext`). The program must have its memory plan, as regions must be correct under it.
///
/// A region is the longest run of kernels from an instruction on that is one nest of loops
/// (`findDomain`). Its results must not lie over operands still read by the kernel: a run that
/// conflicts with the memory plan is cut short. Example: matmul, add, gelu, matmul gives one
/// region, {add, gelu}.
std::vector<KernelSource> formRegions(program::Program &program, const EmittedOps &origins,
                                      const EmitFn &emit);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_FORMREGIONS_H

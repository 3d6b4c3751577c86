//===- FormRegions.h - Which kernels of a Program are compiled together -----===//

#ifndef TBC_CODEGEN_CPU_FORMREGIONS_H
#define TBC_CODEGEN_CPU_FORMREGIONS_H

#include "codegen/EmitProgram.h"
#include "codegen/cpu/CpuTarget.h"
#include "codegen/cpu/EmitKernel.h"

#include <functional>

namespace tbc::cpu {

/// A function to be compiled, as text: the module of emitKernel with the function's name in it.
struct KernelSource {
  std::string symbol;
  std::string text;
};

/// Gives every block of `program` its regions and returns the distinct functions they need, in the
/// order of their first use. `origins`: of emitProgram; the context must be prepared
/// (prepareContext). The program must have its memory plan: regions are such that their kernels are
/// right with it.
///
/// From each instruction on, a region is the longest run of kernels that is one nest of loops
/// (findDomain) and whose results lie over no operand that the kernel still needs; a run that is
/// too long for the memory plan is cut short.
std::vector<KernelSource> formRegions(program::Program &program, const EmittedOps &origins,
                                      const CpuTarget &target);

/// Makes the kernel of a function whose loops are found; failure (without a diagnostic) if it
/// cannot.
using EmitFn = std::function<mlir::FailureOr<Kernel>(mlir::func::FuncOp, const Domain &)>;

/// The same with kernels of another kind.
std::vector<KernelSource> formRegions(program::Program &program, const EmittedOps &origins,
                                      const EmitFn &emit);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_FORMREGIONS_H

//===- CompileKernels.h - Compile kernel sources to a shared object ---------===//

#ifndef TBC_CODEGEN_CPU_COMPILEKERNELS_H
#define TBC_CODEGEN_CPU_COMPILEKERNELS_H

#include "codegen/cpu/KernelCache.h"
#include "codegen/region/FormRegions.h"

namespace tbc::cpu {

/// Compiles `sources` on all cores of this machine and links them to the shared object `path`.
/// `programHash`: the SHA-256 of the Program's file (runtime/abi/CompiledKernel.h). The same input
/// gives the same bytes, with or without hits in `cache`. Returns the number of cache hits.
///
/// Errors: there is no linker (ld.lld); the file cannot be written; a kernel cannot be compiled,
/// which is a bug of the compiler.
Result<size_t> compileKernels(const std::vector<region::KernelSource> &sources,
                              const CpuTarget &target, const std::string &programHash,
                              const std::string &path, const KernelCache *cache = nullptr);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_COMPILEKERNELS_H

//===- CompileKernels.h - From the sources of kernels to a shared object ----===//

#ifndef TBC_CODEGEN_CPU_COMPILEKERNELS_H
#define TBC_CODEGEN_CPU_COMPILEKERNELS_H

#include "codegen/cpu/FormRegions.h"
#include "codegen/cpu/KernelCache.h"

namespace tbc::cpu {

/// Compiles `sources`, on all of this machine's cores, and links them to the shared object `path`
/// for the program whose file has the SHA-256 `programHash` (runtime/abi/CompiledKernel.h). The
/// same input is the same bytes, whether `cache`, if there is one, has some of them already or not.
/// Returns how many it had.
///
/// Errors: there is no linker (ld.lld); the file cannot be written; a kernel cannot be compiled,
/// which is a bug of the compiler.
Result<size_t> compileKernels(const std::vector<KernelSource> &sources, const CpuTarget &target,
                              const std::string &programHash, const std::string &path,
                              const KernelCache *cache = nullptr);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_COMPILEKERNELS_H

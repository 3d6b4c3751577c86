//===- CompileCudaKernels.h - Compile kernel sources to GPU images ----------===//

#ifndef TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H
#define TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H

#include "codegen/cuda/FormCudaKernels.h"

namespace tbc::cuda {

/// Returns the path of NVIDIA's assembler (ptxas) from PATH, $CUDA_HOME/bin or CUDA's default
/// folder; empty if not found.
std::string findAssembler();

/// Writes the `program::cudaKernelsFile` and its images into `folder`. `programHash`: the SHA-256
/// of the Program's file. The images are PTX for every architecture and, if `assembler` (ptxas) is
/// given, also machine code, which spares each rank the translation. Returns the written list.
///
/// Errors: Other; a file cannot be written; the assembler's message; the errors of `lowerToPtx`.
Result<program::CudaKernels> compileCudaKernels(const CudaSources &sources,
                                                const CudaTarget &target,
                                                const std::string &programHash,
                                                const std::string &folder,
                                                const std::string &assembler);

/// Removes the output of `compileCudaKernels` from `folder`: all files on its list, and the list.
Status removeCudaKernels(const std::string &folder);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H

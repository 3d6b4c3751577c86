//===- CompileCudaKernels.h - From the sources of kernels to images ---------===//

#ifndef TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H
#define TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H

#include "codegen/cuda/FormCudaKernels.h"

namespace tbc::cuda {

/// NVIDIA's assembler: in PATH, in $CUDA_HOME/bin or where CUDA is installed by default; empty
/// where there is none.
std::string findAssembler();

/// Writes the program::cudaKernelsFile of the Program whose file has the SHA-256 `programHash` into
/// `folder`, and its images: PTX of every architecture and, if `assembler` (ptxas) is given, their
/// machine code, which spares each rank the translation. Returns the list that it wrote.
///
/// Errors: Other; a file that cannot be written, what the assembler says, and as of lowerToPtx.
Result<program::CudaKernels> compileCudaKernels(const CudaSources &sources,
                                                const CudaTarget &target,
                                                const std::string &programHash,
                                                const std::string &folder,
                                                const std::string &assembler);

/// Removes what compileCudaKernels wrote into `folder`: all that its list names, and the list.
Status removeCudaKernels(const std::string &folder);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_COMPILECUDAKERNELS_H

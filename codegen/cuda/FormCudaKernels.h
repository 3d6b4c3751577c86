//===- FormCudaKernels.h - The kernels that a Program has on GPUs -----------===//

#ifndef TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H
#define TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H

#include "codegen/cpu/FormRegions.h"
#include "codegen/cuda/CudaTarget.h"
#include "runtime/abi/CudaKernels.h"

namespace tbc::cuda {

/// What a Program needs of kernels, before they are lowered.
struct CudaSources {
  /// Of regions and, in the form for devices, of accumulators, each once.
  std::vector<cpu::KernelSource> sources;
  /// How they are launched; without images and the Program's hash.
  program::CudaKernels list;
};

/// Gives every block of `program` its regions: those of cpu::formRegions, and one for each other op
/// that has a kernel (emitOpKernel). The context of `origins` must be prepared
/// (cuda::prepareContext).
///
/// Errors: Usage, unless the target allows host ops: kernels that no region does and values added
/// to a slot without a kernel for that, by op, each with how many there are and the place of the
/// first.
Result<CudaSources> formCudaKernels(program::Program &program, const EmittedOps &origins,
                                    mlir::MLIRContext &context, const CudaTarget &target);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H

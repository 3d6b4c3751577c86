//===- FormCudaKernels.h - Choose the GPU kernels of a Program --------------===//

#ifndef TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H
#define TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H

#include "codegen/cuda/CudaTarget.h"
#include "codegen/region/FormRegions.h"
#include "runtime/abi/CudaKernels.h"

namespace tbc::cuda {

/// The kernels of a Program before lowering.
struct CudaSources {
  /// Sources of regions and, in the form for devices, of accumulators, each once.
  std::vector<region::KernelSource> sources;
  /// The kernels of regions; their sources are in `sources`.
  region::RegionKernels regions;
  /// Launch parameters; images and the Program's hash are missing.
  program::CudaKernels list;
};

/// Compiles the regions of every block of `program` (region::formRegions), joins neighbours that
/// one launch can do (`joinKernels`), and adds one for each other op with a kernel
/// (`emitOpKernel`). The context of `origins` must be prepared
/// (`cuda::prepareContext`).
///
/// Errors: Usage, unless the target allows host ops. Lists ops outside of all regions, and slots
/// without an accumulator kernel, each with the count and the location of the first.
Result<CudaSources> formCudaKernels(program::Program &program, const EmittedOps &origins,
                                    mlir::MLIRContext &context, const CudaTarget &target);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_FORMCUDAKERNELS_H

//===- JoinKernels.h - One launch for several kernels of a block ------------===//

#ifndef TBC_CODEGEN_CUDA_JOINKERNELS_H
#define TBC_CODEGEN_CUDA_JOINKERNELS_H

#include "codegen/cuda/CudaTarget.h"
#include "codegen/region/FormRegions.h"

namespace tbc::cuda {

/// By the symbol of a kernel: the code of one of its threads (`emitThread`).
using ThreadCode = std::map<std::string, region::Kernel>;

/// Joins neighbouring regions of a block into one region, which a kernel does in one launch ("multi
/// tensor apply"; Apex, csrc/multi_tensor_apply.cuh). `threads` has the regions that may be joined.
///
/// A joint kernel has a list of segments, one for each region. A segment has whole blocks of
/// threads, in the order of the list; a block finds its segment by halving a table of the first
/// blocks, then loads the addresses of its buffers. Segments with equal code share it, for any
/// number of elements. Every element is computed by one thread, as before, so numbers stay the
/// same.
///
/// Neighbours are joined by `reshard::joinLaunches`, as the planner counts them. A region may be
/// joined if
///   - all results are results of the block alone, read by no other instruction: so kernels do not
///     depend on each other, and the memory plan does not grow;
///   - no result is a loss, which an evaluation completes by itself (runtime/exec/LossSlice.h);
///   - it reads no matmul, which a library may execute together with it.
///
/// Example: Adam reads 4 tensors and writes 4 of each of the 148 parameters of GPT-2, and reads 4
/// scalars. 63 parameters have 508 addresses, so there are 3 launches.
void joinKernels(program::Program &program, region::RegionKernels &kernels,
                 const ThreadCode &threads, mlir::MLIRContext &context, Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_JOINKERNELS_H

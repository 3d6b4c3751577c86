//===- LowerPtx.h - Compile the text of kernels to PTX ----------------------===//

#ifndef TBC_CODEGEN_CUDA_LOWERPTX_H
#define TBC_CODEGEN_CUDA_LOWERPTX_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

/// Returns the PTX (version 8.0, of CUDA 12.0) of all functions of these modules (`emitCudaKernel`,
/// `emitAccumulator`), as kernels of at most `threadsPerBlock` threads a block, or of as many as
/// `allowThreads` has set. `architecture`: 80 for sm_80. The same texts give the same bytes.
///
/// CUDA's libdevice is not used, because it may be missing: functions become polynomials or
/// instructions. Errors: Other; the name of an unsupported function, or the message of LLVM or
/// MLIR. Both are bugs of the compiler.
Result<std::string> lowerToPtx(const std::vector<std::string> &texts, int architecture);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_LOWERPTX_H

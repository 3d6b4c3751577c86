//===- LowerPtx.h - From the text of kernels to PTX -------------------------===//

#ifndef TBC_CODEGEN_CUDA_LOWERPTX_H
#define TBC_CODEGEN_CUDA_LOWERPTX_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

/// The PTX (version 8.0, of CUDA 12.0) of all functions of these modules (emitCudaKernel,
/// emitAccumulator), as kernels of threadsPerBlock threads; `architecture`: 80 for sm_80. The same
/// texts are the same bytes.
///
/// Nothing is taken from CUDA's libdevice, which may not be there: functions are polynomials or
/// instructions. Errors: Other; a kernel that needs another function, by its name, or what LLVM or
/// MLIR says: bugs of the compiler.
Result<std::string> lowerToPtx(const std::vector<std::string> &texts, int architecture);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_LOWERPTX_H

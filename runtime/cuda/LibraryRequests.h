//===- LibraryRequests.h - Requests to NVIDIA's libraries ------------------===//
//
// Part of tbc. Plain C++. The regions of a program that are offered to a library, and their form.
// Needs no library. If a library refuses a request, the program's kernels are used
// (LibraryCalls.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H
#define TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H

#include "runtime/cuda/CudnnOps.h"
#include "runtime/cuda/Epilogues.h"
#include "runtime/cuda/Matmuls.h"

#include <map>
#include <set>

namespace tbc::cuda {

/// Returns the request to cuDNN for a region of one instruction, for this version and compute
/// capability (10 major + minor).
CudnnRequest cudnnRequestOf(const program::Program &program, int stage, program::BlockId id,
                            const program::Region &region, size_t version, int capability);

/// Returns the einsum at `index` of a block as one matmul with a result of this type. Errors:
/// Usage, as for matmulOf.
Result<EinsumMatmul> einsumMatmulOf(const program::Stage &stage, const program::Instruction &einsum,
                                    const kernels::TensorType &result);

/// Returns a matmul with its epilogue. Errors: Usage, with the reason for keeping them apart; empty
/// if the einsum alone is no matmul either.
Result<EinsumMatmul> epilogueMatmulOf(const program::Stage &stage,
                                      const program::Instruction &einsum, const Epilogue &e);

enum class Library { CublasLt, Cudnn };

/// Returns "cuBLASLt" or "cuDNN".
const char *name(Library library);

/// The libraries' part of a block, if they refuse no request.
struct LibraryUse {
  std::map<int, Library> regions; // by the first instruction of the region
  std::set<int> leftOut;          // regions included in the call of a later region
};
LibraryUse libraryUseOf(const program::Program &program, int stage, program::BlockId id,
                        int capability);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H

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

/// Returns the operands of `instruction` that cuDNN's graphs of it read.
std::set<program::ValueId> valuesRead(const CudnnWork &work,
                                      const program::Instruction &instruction);

/// Returns the regions that need no launch, as only libraries have their results as operands and do
/// not read them. `reads` has the values that a library's call reads, by the first instruction of
/// its region. A region is in it by its first instruction.
///
/// Example: cuDNN knows the positions of causal attention. So an iota of these, read by attention
/// alone, is computed only where attention is the program's own kernel.
std::set<int> unreadRegions(const program::Block &block,
                            const std::map<int, std::set<program::ValueId>> &reads);

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
  std::set<int> unread;           // regions without a launch (unreadRegions)
};
LibraryUse libraryUseOf(const program::Program &program, int stage, program::BlockId id,
                        int capability);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H

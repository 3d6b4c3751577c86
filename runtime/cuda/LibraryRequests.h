//===- LibraryRequests.h - What NVIDIA's libraries are asked to do ---------===//
//
// Part of tbc. Plain C++. Which regions of a program go to a library, and in which form. Needs no
// library: what it refuses when it is asked, kernels of the program do (LibraryCalls.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H
#define TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H

#include "runtime/cuda/CudnnOps.h"
#include "runtime/cuda/Epilogues.h"
#include "runtime/cuda/MatrixProducts.h"

#include <map>
#include <set>

namespace tbc::cuda {

/// What cuDNN of this version, on a device of this compute capability (10 major + minor), is asked
/// of a region of one instruction.
CudnnRequest cudnnRequestOf(const program::Program &program, int stage, program::BlockId id,
                            const program::Region &region, size_t version, int capability);

/// The einsum at `index` of a block as one product with a result of this type. Errors: Usage, as
/// of productOf.
Result<EinsumProduct> einsumProductOf(const program::Stage &stage,
                                      const program::Instruction &einsum,
                                      const kernels::TensorType &result);

/// A product with what follows it. Errors: Usage; why the two are apart, empty where the einsum
/// alone is no product either.
Result<EinsumProduct> epilogueProductOf(const program::Stage &stage,
                                        const program::Instruction &einsum, const Epilogue &e);

enum class Library { CublasLt, Cudnn };

/// "cuBLASLt", "cuDNN".
const char *name(Library library);

/// What libraries do of a block where they refuse nothing that they are asked.
struct LibraryUse {
  std::map<int, Library> regions; // by the first instruction of the region
  std::set<int> leftOut;          // regions that the call of a later region does too
};
LibraryUse libraryUseOf(const program::Program &program, int stage, program::BlockId id,
                        int capability);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_LIBRARYREQUESTS_H

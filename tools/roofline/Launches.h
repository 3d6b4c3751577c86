//===- Launches.h - Kernel launches of a step ------------------------------===//
//
// Plain C++. Lists one launch per region of a block, and one per instruction outside of all
// regions. A matmul with its epilogue is one launch if cuBLASLt fuses both. Libraries are assumed
// to accept all requests (runtime/cuda/LibraryRequests.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_ROOFLINE_LAUNCHES_H
#define TBC_TOOLS_ROOFLINE_LAUNCHES_H

#include "runtime/abi/CudaKernels.h"
#include "runtime/abi/Program.h"

#include <string>
#include <vector>

namespace tbc::roofline {

enum class By { Kernel, CublasLt, Cudnn, Host };

/// "kernel", "cuBLASLt", "cuDNN", "host".
const char *name(By by);

struct Launch {
  int stage = 0;
  program::BlockId block = schedule::Action::Kind::Forward;
  std::vector<int> instructions; // of the block; empty: a value is added to a slot
  std::string what;              // their ops, "layer_norm_grad+add", "60 x adamw"
  std::string symbol;            // of the compiled kernel; empty for others
  By by = By::Kernel;
  int64_t perStep = 1; // executions of its block per step
  std::vector<program::ValueId> operands, results;
  int64_t addedBytes = 0; // of a slot, read and written in addition

  /// Example: "stage 0, forward block, instruction 7 (fc1, einsum)".
  std::string place(const program::Program &program) const;
};

/// Returns the launches, ordered by the first execution of their block in a step. `kernels`: of a
/// program for GPUs, null for CPUs. `capability`: 10 major + minor of the GPU.
std::vector<Launch> launchesOf(const program::Program &program, const program::CudaKernels *kernels,
                               int capability);

} // namespace tbc::roofline

#endif // TBC_TOOLS_ROOFLINE_LAUNCHES_H

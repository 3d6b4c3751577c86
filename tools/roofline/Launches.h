//===- Launches.h - What a step of a Program launches ----------------------===//
//
// Plain C++. One launch per region of a block, and per instruction that is in no region. A product
// with what follows it is one launch where cuBLASLt does both. Libraries count as doing all that
// they are asked (runtime/cuda/LibraryRequests.h).
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
  std::string what;              // their ops, "layer_norm_grad+add"
  std::string symbol;            // of the compiled kernel; empty where there is none
  By by = By::Kernel;
  int64_t perStep = 1; // how often its block runs in a step
  std::vector<program::ValueId> operands, results;
  int64_t addedBytes = 0; // of a slot that is read and written beside these

  /// e.g. "stage 0, forward block, instruction 7 (fc1, einsum)".
  std::string place(const program::Program &program) const;
};

/// In the order in which a step begins to execute their blocks. `kernels`: of a program for GPUs,
/// null for CPUs. `capability`: 10 major + minor of the GPU.
std::vector<Launch> launchesOf(const program::Program &program, const program::CudaKernels *kernels,
                               int capability);

} // namespace tbc::roofline

#endif // TBC_TOOLS_ROOFLINE_LAUNCHES_H

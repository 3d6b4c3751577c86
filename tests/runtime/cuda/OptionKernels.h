//===- OptionKernels.h - Kernels that options of a run need, for the fake driver ===//

#ifndef TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H
#define TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H

#include "runtime/abi/CompiledKernel.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// Gives `driver` the kernels of runtime/abi/SparseKernels.h, which `find` has in their form for
/// hosts, of `numThreads` threads.
void addSparseKernels(FakeDriver &driver,
                      const std::function<program::CompiledKernel(const std::string &)> &find,
                      int64_t numThreads);

/// The same for those of runtime/abi/Fp8Kernels.h; without those that `find` does not have.
void addFp8Kernels(FakeDriver &driver,
                   const std::function<program::CompiledKernel(const std::string &)> &find,
                   int64_t numThreads);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H

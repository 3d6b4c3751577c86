//===- OptionKernels.h - Kernels for options of a run, on the fake driver -------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H
#define TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H

#include "runtime/abi/CompiledKernel.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// Adds the kernels of runtime/abi/SparseKernels.h to `driver`. `find` returns their host form.
/// Each runs with `numThreads` threads.
void addSparseKernels(FakeDriver &driver,
                      const std::function<program::CompiledKernel(const std::string &)> &find,
                      int64_t numThreads);

/// Adds the kernels of runtime/abi/Fp8Kernels.h, except the ones that `find` lacks.
void addFp8Kernels(FakeDriver &driver,
                   const std::function<program::CompiledKernel(const std::string &)> &find,
                   int64_t numThreads);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_OPTIONKERNELS_H

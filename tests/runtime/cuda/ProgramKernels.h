//===- ProgramKernels.h - Kernels of a program for the fake driver ---------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H
#define TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H

#include "runtime/abi/CudaKernels.h"
#include "runtime/abi/Program.h"
#include "runtime/cuda/KernelModule.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// Gives every block of `program`, which has its memory plan, regions that together do all of its
/// kernels, of one to `mostInstructions` each, and `driver` a kernel for each of them that does its
/// instructions by their reference kernels, and for everything that is added to a slot. Returns the
/// list of them, of one image for sm_80.
program::CudaKernels addProgramKernels(FakeDriver &driver, program::Program &program,
                                       int mostInstructions);

/// Gives `driver` the accumulators of the list.
void addAccumulators(FakeDriver &driver, const program::CudaKernels &list);

/// The list with one image for sm_80, which writeKernels writes.
program::CudaKernels withFakeImage(program::CudaKernels list);

/// Writes the list and its image to `folder`, for a program.json of this hash.
void writeKernels(program::CudaKernels kernels, const std::string &folder,
                  const std::string &programHash);

/// The files of a folder that has no seal.
cuda::FolderFiles filesIn(const std::string &folder);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H

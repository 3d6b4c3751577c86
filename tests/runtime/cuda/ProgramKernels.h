//===- ProgramKernels.h - Kernels of a program for the fake driver ---------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H
#define TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H

#include "runtime/abi/CudaKernels.h"
#include "runtime/abi/Program.h"
#include "runtime/cuda/KernelModule.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// Divides the kernels of every block of `program`, whose memory plan exists, into regions of 1 to
/// `mostInstructions` instructions. Adds to `driver` one kernel per region, made of reference
/// kernels, and one per accumulation into a slot. Returns their list, with one image for sm_80.
program::CudaKernels addProgramKernels(FakeDriver &driver, program::Program &program,
                                       int mostInstructions);

/// Adds the accumulators of the list to `driver`.
void addAccumulators(FakeDriver &driver, const program::CudaKernels &list);

/// Returns the list with the sm_80 image that `writeKernels` writes.
program::CudaKernels withFakeImage(program::CudaKernels list);

/// Writes the list and its image to `folder`. `programHash` is the hash of program.json.
void writeKernels(program::CudaKernels kernels, const std::string &folder,
                  const std::string &programHash);

/// Returns the files of an unsealed folder.
cuda::FolderFiles filesIn(const std::string &folder);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_PROGRAMKERNELS_H

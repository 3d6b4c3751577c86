//===- CudaKernels.h - What compiled kernels and GPUs agree on --------------===//
//
// Part of tbc. Plain C++. Beside program.json of a program for GPUs lies `cudaKernelsFile`, which
// lists its kernels and how each is launched, and beside that the images with their code: one text
// of PTX per architecture, each with all of them, and maybe the same as machine code. A driver
// translates the PTX of an architecture for any later one; machine code is executed by devices of
// its major version from its minor version on.
//
// A kernel does a region (program::Region) at once. Its parameters are the addresses of
// regionValues' operands, then of its results, each dense and row-major, aligned to 256 bytes, with
// elements as wide as their dtype (bf16 two bytes, bool one, 0 or 1). Where the memory plan has a
// result at the place of an operand, both are the same address; otherwise no result shares bytes
// with an operand or another result.
//
// An accumulator adds to a slot: its parameters are the address of the slot, that of the value and
// the number of elements (64 bits); it is right for any number of blocks.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_CUDAKERNELS_H
#define TBC_RUNTIME_ABI_CUDAKERNELS_H

#include "runtime/abi/Status.h"
#include "runtime/kernels/DType.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::program {

inline constexpr const char *cudaKernelsFile = "kernels.cuda.json";

enum class CudaCode { Ptx, Cubin };

struct CudaImage {
  int architecture = 0; // 10 major + minor: 90 for sm_90
  CudaCode code = CudaCode::Ptx;
  std::string file;   // in the same folder
  std::string sha256; // of its bytes
};

/// Whether a device of this compute capability, 10 major + minor, executes it.
bool isExecutedBy(const CudaImage &image, int capability);

struct CudaKernel {
  std::string symbol;
  int64_t blocks = 1; // of `threads` threads each, in one dimension
  int threads = 1;
  int sharedBytes = 0; // dynamic shared memory of a block
};

struct CudaAccumulator {
  std::string symbol;
  kernels::DType slot = kernels::DType::F32, value = kernels::DType::F32;
  int threads = 256;
};

struct CudaKernels {
  std::string programSha256; // of the bytes of program.json
  std::vector<CudaImage> images;
  std::vector<CudaKernel> kernels;
  std::vector<CudaAccumulator> accumulators;
  /// The ops of kernels that no region does, and sums (sumName) without accumulator: whoever
  /// compiled the program allowed the host to execute them. Of other ops without kernel nothing may
  /// be executed.
  std::vector<std::string> hostOps;
};

/// "sum of f32 and bf16": what an accumulator does.
std::string sumName(kernels::DType slot, kernels::DType value);

/// Its text, as JSON; the same kernels are the same bytes.
std::string writeCudaKernels(const CudaKernels &kernels);

/// The inverse. Errors: Usage; it is no such text, is of another version, or lacks something, or
/// names a file of another folder.
Result<CudaKernels> readCudaKernels(std::string_view text);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_CUDAKERNELS_H

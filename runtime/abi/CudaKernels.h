//===- CudaKernels.h - The contract of compiled GPU kernels ---------------===//
//
// Part of tbc. Plain C++. A program for GPUs has the file `cudaKernelsFile` beside program.json. It
// lists the kernels and the launch parameters of each. Beside it are images with the code: PTX text
// for each architecture, and optionally machine code (cubin). Each image has all kernels. A driver
// translates PTX of an architecture for any later one. Machine code runs on devices of its major
// version and the same or a later minor version.
//
// A kernel does a whole region (`program::Region`). Its parameters are the addresses of the
// operands of `regionValues`, then of its results. Each tensor is dense and row-major, aligned to
// 256 bytes, with elements as wide as their dtype (bf16 two bytes; bool one byte, 0 or 1). If the
// memory plan has a result at the bytes of an operand, both are the same address. Otherwise a
// result shares no bytes with an operand or another result.
//
// A kernel of many buffers may have all of these addresses in one parameter, an array of at most
// `maxArrayAddresses` by value. So whoever launches a kernel has the addresses one behind the
// other, beginning at its first argument. Example: one launch does the optimizer's step of 60
// tensors.
//
// A kernel may take several launches, one after the other in one stream, with the same parameters.
// Example: a batch norm has one per pass over the rows. Between its launches, and between blocks of
// one, a kernel keeps values in a workspace, whose address is the last parameter if
// `workspaceBytes` is not 0. It is aligned to 256 bytes and needs no initial content. Kernels of
// one stream may share it. A kernel with a workspace may also count its blocks in variables of the
// image, which all such kernels share. So these run one after the other, too.
//
// An accumulator adds to a slot. Its parameters are the address of the slot, the address of the
// value and the number of elements (64 bits). It is correct for any number of blocks.
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

/// Parameters of a kernel take at most 4 KiB (PTX ISA, kernel function parameters, before 8.1).
inline constexpr int maxArrayAddresses = (4 << 10) / int(sizeof(uint64_t));

enum class CudaCode { Ptx, Cubin };

struct CudaImage {
  int architecture = 0; // 10 major + minor: 90 for sm_90
  CudaCode code = CudaCode::Ptx;
  std::string file;   // in the same folder
  std::string sha256; // of its bytes
};

/// Whether a device of this compute capability can execute `image`. `capability` is 10 * major +
/// minor. Example: 90 is sm_90, which executes PTX for sm_80 but no cubin for sm_80.
bool isExecutedBy(const CudaImage &image, int capability);

struct CudaLaunch {
  std::string symbol;
  int64_t blocks = 1; // of `threads` threads each, in one dimension
  int threads = 1;
  int sharedBytes = 0; // dynamic shared memory of a block
};

/// A kernel of one launch, or of several: its own first, and `then` those after it.
struct CudaKernel {
  std::string symbol;
  int64_t blocks = 1;
  int threads = 1;
  int sharedBytes = 0;
  std::vector<CudaLaunch> then = {};
  int64_t workspaceBytes = 0;

  /// Returns all launches in order.
  std::vector<CudaLaunch> launches() const;
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
  /// Ops of kernels outside all regions, and sums (`sumName`) without an accumulator. The host may
  /// execute these ops, because the user who compiled the program allowed it. Any other op without
  /// a kernel cannot be executed.
  std::vector<std::string> hostOps;
};

/// The name of an accumulator's operation, as "sum of f32 and bf16".
std::string sumName(kernels::DType slot, kernels::DType value);

/// Returns the JSON text; equal kernels give equal bytes.
std::string writeCudaKernels(const CudaKernels &kernels);

/// The inverse. Errors: Usage; it is not such a text, has another version, lacks a field, or names
/// a file of another folder.
Result<CudaKernels> readCudaKernels(std::string_view text);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_CUDAKERNELS_H

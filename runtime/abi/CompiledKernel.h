//===- CompiledKernel.h - What compiled kernels and executors agree on ------===//
//
// Part of tbc. Plain C++. Beside program.json of a program for CPUs lies one shared object,
// `kernelsFile`, with a function per distinct compiled region (program::Region) and three constants
// that say what it belongs to.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_COMPILEDKERNEL_H
#define TBC_RUNTIME_ABI_COMPILEDKERNEL_H

#include <cstdint>

namespace tbc::program {

/// Does iterations [begin, end) of the `extent` of a region.
///
/// `buffers` are the region's operands, then its results (regionValues), each dense and row-major,
/// aligned to kernelAlignment bytes, with elements as wide as their dtype (bf16 two bytes, bool
/// one, 0 or 1). Where the memory plan has a result at the place of an operand, both are the same
/// buffer; otherwise no result shares bytes with an operand or another result. The values inside
/// the region are nowhere.
///
/// Every iteration writes its own part of the results, so threads may share them out without
/// communication; what an iteration writes does not depend on how. All together write all of them.
/// Pure but for that: no global state, no allocation, never fails.
using CompiledKernel = void (*)(void *const *buffers, int64_t begin, int64_t end);

inline constexpr int64_t kernelAlignment = 64;

inline constexpr const char *kernelsFile = "kernels.so";

/// Texts that the shared object exports, as arrays of char that end with a zero:
/// the version of all this, "2";
inline constexpr const char *kernelsVersionSymbol = "tbc_kernels_version";
inline constexpr const char *kernelsVersion = "2";
/// the SHA-256 of the bytes of program.json it belongs to, in hexadecimal;
inline constexpr const char *kernelsProgramSymbol = "tbc_program_sha256";
/// the features a CPU must have, as the kernel names them in /proc/cpuinfo, separated by spaces.
inline constexpr const char *kernelsCpuFeaturesSymbol = "tbc_cpu_features";

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_COMPILEDKERNEL_H

//===- CompiledKernel.h - The contract of compiled CPU kernels ------------===//
//
// Part of tbc. Plain C++. A program for CPUs has the shared object `kernelsFile` beside
// program.json. It has one function per distinct compiled region (`program::Region`) and three
// constants that identify its version, program and CPU features.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_COMPILEDKERNEL_H
#define TBC_RUNTIME_ABI_COMPILEDKERNEL_H

#include <cstdint>

namespace tbc::program {

/// Does iterations [begin, end) of the `extent` of a region.
///
/// `buffers` are the region's operands, then its results (`regionValues`). Each is dense and
/// row-major, aligned to `kernelAlignment` bytes, with elements as wide as their dtype (bf16 two
/// bytes; bool one byte, 0 or 1). If the memory plan has a result at the bytes of an operand, both
/// are the same buffer. Otherwise a result shares no bytes with an operand or another result.
/// Values inside the region have no buffer.
///
/// Every iteration writes its own part of the results, so threads may share the iterations without
/// communication. The result of an iteration does not depend on how they are shared. Together they
/// write all elements. Otherwise the function is pure: no global state, no allocation, no failure.
/// Example: extent 100 on 4 threads runs [0, 25), [25, 50), [50, 75) and [75, 100).
using CompiledKernel = void (*)(void *const *buffers, int64_t begin, int64_t end);

inline constexpr int64_t kernelAlignment = 64;

inline constexpr const char *kernelsFile = "kernels.so";

/// The shared object exports these texts, as zero-terminated arrays of char. The version of this
/// contract:
inline constexpr const char *kernelsVersionSymbol = "tbc_kernels_version";
inline constexpr const char *kernelsVersion = "2";
/// The SHA-256 of the bytes of its program.json, in hexadecimal:
inline constexpr const char *kernelsProgramSymbol = "tbc_program_sha256";
/// The CPU features that it needs, separated by spaces, named as in /proc/cpuinfo:
inline constexpr const char *kernelsCpuFeaturesSymbol = "tbc_cpu_features";

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_COMPILEDKERNEL_H

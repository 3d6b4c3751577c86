//===- Dnnl.h - What kernels by oneDNN have in common ---------------------------===//
//
// Part of tbc. Includes oneDNN's headers: for the .cpp files that wrap it alone.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_DNNL_H
#define TBC_RUNTIME_CPU_DNNL_H

#include <dnnl.hpp>

namespace tbc::cpu {

/// The engine of this process.
const dnnl::engine &dnnlEngine();

/// The stream of this thread. Streams on CPUs hold no state, but each thread gets its own all the
/// same.
dnnl::stream &dnnlStream();

/// ScratchMemory of this thread. For scratchpads too: oneDNN's own may only be used by the thread
/// that made the primitive.
char *threadScratch(size_t bytes);

/// Attributes of a primitive whose scratchpad is the caller's.
dnnl::primitive_attr withOwnScratchpad();

/// oneDNN has a plain loop for what it has no kernel for: ours is no slower, and exact.
bool isPlainLoop(const char *implementation);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_DNNL_H

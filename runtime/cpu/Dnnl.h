//===- Dnnl.h - What kernels by oneDNN have in common ---------------------------===//
//
// Part of tbc. Includes oneDNN's headers: for the .cpp files that wrap it alone.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_DNNL_H
#define TBC_RUNTIME_CPU_DNNL_H

#include "runtime/cpu/Threads.h"

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>

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

/// The primitive of a shape, made by Made(shape) when it is first asked for. Nothing where oneDNN
/// lacks it or has plain loops only. May be called by several threads.
template <class Primitive, class Made, class Shape>
std::shared_ptr<const Primitive> primitiveOf(const Shape &shape) {
  static std::mutex mutex;
  static std::map<Shape, std::shared_ptr<const Primitive>> known;
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = known.find(shape); found != known.end())
    return found->second;
  // How many threads a primitive is made for is settled here: one.
  keepLibrariesSerial();
  std::shared_ptr<const Primitive> made;
  try {
    auto candidate = std::make_shared<Made>(shape);
    if (!candidate->isSlow())
      made = std::move(candidate);
  } catch (const dnnl::error &error) {
    if (error.status != dnnl_unimplemented)
      throw;
  }
  known[shape] = made;
  return made;
}

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_DNNL_H

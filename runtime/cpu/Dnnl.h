//===- Dnnl.h - Common parts of kernels by oneDNN -------------------------===//
//
// Part of tbc. Includes oneDNN's headers, so only the .cpp files that wrap it include this.
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

/// The stream of this thread. Streams on CPUs hold no state, but each thread still gets its own.
dnnl::stream &dnnlStream();

/// Scratch memory of this thread. It is used for scratchpads too, because only the thread that made
/// a primitive may use oneDNN's own scratchpad.
char *threadScratch(size_t bytes);

/// Attributes of a primitive with a scratchpad supplied by the caller.
dnnl::primitive_attr withOwnScratchpad();

/// Whether oneDNN has its kernels for AVX-512 here.
bool hasAvx512();

/// Whether it is oneDNN's plain fallback loop. Our reference loops are as fast, and exact.
bool isPlainLoop(const char *implementation);

/// Returns the primitive of a shape, made by Made(shape) on the first request. Returns null if
/// oneDNN lacks it or has only plain loops. Several threads may call it.
template <class Primitive, class Made, class Shape>
std::shared_ptr<const Primitive> primitiveOf(const Shape &shape) {
  static std::mutex mutex;
  static std::map<Shape, std::shared_ptr<const Primitive>> known;
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = known.find(shape); found != known.end())
    return found->second;
  // oneDNN fixes the number of threads of a primitive here: one.
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

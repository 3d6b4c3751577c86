//===- ScratchMemory.h - Scratch memory that is reused --------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_SCRATCHMEMORY_H
#define TBC_RUNTIME_CPU_SCRATCHMEMORY_H

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace tbc::cpu {

/// Memory that only grows, so repeated requests touch no new pages.
class ScratchMemory {
public:
  /// Returns at least `bytes` bytes of undefined contents, aligned to a page; valid until the next
  /// call. Throws bad_alloc.
  char *atLeast(size_t bytes) {
    if (bytes > size) {
      memory.reset();
      size = 0;
      constexpr size_t page = 4096;
      size_t rounded = (bytes + page - 1) / page * page;
      memory.reset(static_cast<char *>(std::aligned_alloc(page, rounded)));
      if (!memory)
        throw std::bad_alloc();
      size = rounded;
    }
    return memory.get();
  }

private:
  struct Free {
    void operator()(char *pointer) const { std::free(pointer); }
  };
  std::unique_ptr<char, Free> memory;
  size_t size = 0;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_SCRATCHMEMORY_H

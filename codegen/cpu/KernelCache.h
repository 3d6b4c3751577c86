//===- KernelCache.h - Objects of kernels that were compiled before ---------===//
//
// A folder with one file per object, named by the SHA-256 of all that it follows from. Files appear
// whole under their names and carry the SHA-256 of what is in them; one that is damaged is as good
// as none. A cache that cannot be read or written costs time, never a compilation.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CPU_KERNELCACHE_H
#define TBC_CODEGEN_CPU_KERNELCACHE_H

#include "codegen/cpu/CpuTarget.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tbc::cpu {

/// Used by several threads and processes at once.
class KernelCache {
public:
  static constexpr int64_t defaultBytes = int64_t(256) << 20;

  /// `maxBytes`: what trim() leaves. The folder need not be there.
  explicit KernelCache(std::string folder, int64_t maxBytes = defaultBytes)
      : folder(std::move(folder)), maxBytes(maxBytes) {}

  /// tbc/kernels in $XDG_CACHE_HOME, or in .cache in $HOME; nothing where neither is an absolute
  /// path.
  static std::optional<KernelCache> ofUser();

  /// The name of the object that this compiler makes of `text` for `target`: another for every
  /// build of the compiler.
  static std::string keyOf(const std::string &text, const CpuTarget &target);

  std::optional<std::string> find(const std::string &key) const;
  void put(const std::string &key, const std::string &object) const;
  /// Removes what was not used for the longest time, until what is left takes no more than it may.
  void trim() const;

private:
  std::string pathOf(const std::string &key) const { return folder + "/" + key + ".o"; }

  std::string folder;
  int64_t maxBytes;
};

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_KERNELCACHE_H

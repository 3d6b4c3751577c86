//===- KernelCache.h - Cache of compiled kernel objects ---------------------===//
//
// A folder with one file per object, named by the SHA-256 of all of the object's inputs. Files
// appear atomically and carry the SHA-256 of their content; a damaged file counts as a miss. A
// cache that cannot be read or written costs time but never fails a compilation.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CPU_KERNELCACHE_H
#define TBC_CODEGEN_CPU_KERNELCACHE_H

#include "codegen/cpu/CpuTarget.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tbc::cpu {

/// Safe for use by several threads and processes at once.
class KernelCache {
public:
  static constexpr int64_t defaultBytes = int64_t(256) << 20;

  /// `maxBytes`: the size that `trim` shrinks the cache to. The folder may be missing.
  explicit KernelCache(std::string folder, int64_t maxBytes = defaultBytes)
      : folder(std::move(folder)), maxBytes(maxBytes) {}

  /// Returns the cache in $XDG_CACHE_HOME/tbc/kernels, else $HOME/.cache/tbc/kernels; null if
  /// neither variable is an absolute path.
  static std::optional<KernelCache> ofUser();

  /// Returns the key of the object compiled from `text` for `target`. It differs between builds of
  /// the compiler.
  static std::string keyOf(const std::string &text, const CpuTarget &target);

  std::optional<std::string> find(const std::string &key) const;
  void put(const std::string &key, const std::string &object) const;
  /// Removes the least recently used files until the rest takes at most `maxBytes`.
  void trim() const;

private:
  std::string pathOf(const std::string &key) const { return folder + "/" + key + ".o"; }

  std::string folder;
  int64_t maxBytes;
};

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_KERNELCACHE_H

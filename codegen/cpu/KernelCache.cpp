//===- KernelCache.cpp - Cache of compiled kernel objects -------------------===//

#include "codegen/cpu/KernelCache.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/Sha256.h"

#include "llvm/Config/llvm-config.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace tbc::cpu {

namespace fs = std::filesystem;

static constexpr size_t hashLength = 64;

std::optional<KernelCache> KernelCache::ofUser() {
  auto folderIn = [](const char *variable) -> fs::path {
    const char *value = std::getenv(variable);
    return value && value[0] == '/' ? fs::path(value) : fs::path();
  };
  fs::path base = folderIn("XDG_CACHE_HOME");
  if (base.empty())
    if (fs::path home = folderIn("HOME"); !home.empty())
      base = home / ".cache";
  if (base.empty())
    return std::nullopt;
  return KernelCache(base / "tbc" / "kernels");
}

/// Returns a fingerprint of this build of the compiler.
static std::string thisCompiler() {
  struct stat file{};
  if (stat("/proc/self/exe", &file) != 0)
    return "";
  return std::to_string(file.st_size) + "." + std::to_string(file.st_mtim.tv_sec) + "." +
         std::to_string(file.st_mtim.tv_nsec);
}

std::string KernelCache::keyOf(const std::string &text, const CpuTarget &target) {
  static const std::string compiler =
      thisCompiler() + " " + LLVM_VERSION_STRING + " " + program::kernelsVersion;
  return sha256Hex(compiler + "\n" + target.name + "\n" + std::to_string(target.lanes) + "\n" +
                   target.features + "\n" + text);
}

std::optional<std::string> KernelCache::find(const std::string &key) const {
  std::ifstream file(pathOf(key), std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return std::nullopt;
  std::string whole = text.str();
  if (whole.size() < hashLength)
    return std::nullopt;
  std::string object = whole.substr(hashLength);
  if (whole.compare(0, hashLength, sha256Hex(object)) != 0)
    return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(pathOf(key), fs::file_time_type::clock::now(), ignored); // mark as used
  return object;
}

void KernelCache::put(const std::string &key, const std::string &object) const {
  static std::atomic<int> number{0};
  std::error_code error;
  fs::create_directories(folder, error);
  std::string temporary =
      pathOf(key) + "." + std::to_string(getpid()) + "." + std::to_string(number++) + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file << sha256Hex(object) << object;
  file.close();
  if (file)
    fs::rename(temporary, pathOf(key), error);
  if (!file || error)
    fs::remove(temporary, error);
}

void KernelCache::trim() const {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code isGone; // another process may trim, too
    int64_t bytes = int64_t(it->file_size(isGone));
    fs::file_time_type used = isGone ? fs::file_time_type() : it->last_write_time(isGone);
    if (isGone)
      continue;
    entries.push_back({used, bytes, it->path()});
    total += bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (const Entry &entry : entries) {
    if (total <= maxBytes)
      return;
    if (fs::remove(entry.path, error) && !error)
      total -= entry.bytes;
  }
}

} // namespace tbc::cpu

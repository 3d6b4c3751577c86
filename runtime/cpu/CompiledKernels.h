//===- CompiledKernels.h - The compiled kernels of a program, loaded ------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_COMPILEDKERNELS_H
#define TBC_RUNTIME_CPU_COMPILEDKERNELS_H

#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/Seal.h"
#include "runtime/abi/Status.h"

#include <memory>
#include <optional>
#include <string>

namespace tbc::cpu {

/// A loaded shared object; see runtime/abi/CompiledKernel.h.
class CompiledKernels {
public:
  /// Loads `file` by its descriptor, so the loaded code is the checked code. `programHash` is the
  /// SHA-256 of the program.json that it must belong to. Errors: Usage, naming the file: it cannot
  /// be loaded, is of another version or program, or needs features that this CPU lacks.
  static Result<std::shared_ptr<const CompiledKernels>> open(const program::OpenFile &file,
                                                             const std::string &programHash);

  /// Returns the function, or null if it is missing.
  program::CompiledKernel find(const std::string &symbol) const;

  /// Returns the words of `features` that are missing in `present`; words are separated by spaces.
  /// Example: "avx2 fma" and "sse avx2" give "fma".
  static std::string missingFeatures(const std::string &features, const std::string &present);

private:
  struct Unload {
    void operator()(void *library) const;
  };
  // The loader identifies libraries by path. The descriptor stays open while the library is loaded,
  // so its number in /proc/self/fd is not reused for another file.
  std::optional<program::OpenFile> file;
  std::unique_ptr<void, Unload> library;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_COMPILEDKERNELS_H

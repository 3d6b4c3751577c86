//===- CompiledKernels.h - The shared object of a program ----------------------===//
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
  /// Loads `file` by its descriptor, so that what was checked is what is loaded. `programHash` is
  /// the SHA-256 of the program.json that it must belong to. Errors: Usage, naming the file: it
  /// cannot be loaded, is of another version or another program, or needs features that this CPU
  /// lacks.
  static Result<std::shared_ptr<const CompiledKernels>> open(const program::OpenFile &file,
                                                             const std::string &programHash);

  /// Nothing if it has no such function.
  program::CompiledKernel find(const std::string &symbol) const;

  /// Of `features`, separated by spaces, those that do not stand in `present`, likewise.
  static std::string missingFeatures(const std::string &features, const std::string &present);

private:
  struct Unload {
    void operator()(void *library) const;
  };
  // The loader knows libraries by their paths: the number of the descriptor must not be another
  // file's while it is loaded.
  std::optional<program::OpenFile> file;
  std::unique_ptr<void, Unload> library;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_COMPILEDKERNELS_H

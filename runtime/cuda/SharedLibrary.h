//===- SharedLibrary.h - Libraries that are opened at run time -------------===//
//
// Part of tbc. Plain C++. NVIDIA's libraries are no part of the build: where one is missing or too
// old, whoever needs it gets a sentence that says what to install, and all else works.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_SHAREDLIBRARY_H
#define TBC_RUNTIME_CUDA_SHAREDLIBRARY_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

/// Where a library may be found, and what to say where it is not.
struct LibrarySpec {
  /// "the CUDA driver": how errors name it.
  std::string what;
  /// Tried in this order.
  std::vector<std::string> sonames;
  /// What mends it: "install …".
  std::string remedy;
};

/// An open shared library. It stays open until the process ends: NVIDIA's have threads and exit
/// handlers of their own.
class SharedLibrary {
public:
  /// Errors: Other, with what the loader says of each soname, and the remedy.
  static Result<SharedLibrary> open(const LibrarySpec &spec);

  /// Sets `function` to the symbol. Errors: Other, the library lacks it: it is too old or broken.
  template <typename Function> Status bind(const char *symbol, Function *&function) const {
    Result<void *> address = find(symbol);
    if (!address)
      return address.error();
    function = reinterpret_cast<Function *>(*address);
    return Status::ok();
  }

  /// Errors: Other, unless found >= least. The texts are the versions as people know them.
  Status checkVersion(long found, const std::string &foundText, long least,
                      const std::string &leastText) const;

private:
  SharedLibrary(LibrarySpec spec, std::string soname, void *handle)
      : spec(std::move(spec)), soname(std::move(soname)), handle(handle) {}
  Result<void *> find(const char *symbol) const;

  LibrarySpec spec;
  std::string soname; // of spec.sonames, that was found
  void *handle;
};

/// An entry (name, symbol, …) of a table's list of functions, where the table is loaded: sets
/// `functions`.name to the symbol of `library`, or returns the error from where it stands.
#define TBC_BIND(name, symbol, ...)                                                                \
  if (Status status = library->bind(#symbol, functions.name); !status)                             \
    return status.error();

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_SHAREDLIBRARY_H

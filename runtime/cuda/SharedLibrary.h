//===- SharedLibrary.h - Libraries opened at run time ----------------------===//
//
// Part of tbc. Plain C++. NVIDIA's libraries are not part of the build. If one is missing or too
// old, its users get an error that says how to install it, and everything else works.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_SHAREDLIBRARY_H
#define TBC_RUNTIME_CUDA_SHAREDLIBRARY_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

/// The possible names of a library, and the error if it is missing.
struct LibrarySpec {
  /// The name in errors, e.g. "the CUDA driver".
  std::string what;
  /// Tried in this order.
  std::vector<std::string> sonames;
  /// The remedy, as "install …".
  std::string remedy;
};

/// An open shared library. It stays open until the process ends, because NVIDIA's libraries have
/// their own threads and exit handlers.
class SharedLibrary {
public:
  /// Errors: Other, with the loader's message for each soname, and the remedy.
  static Result<SharedLibrary> open(const LibrarySpec &spec);

  /// Sets `function` to the symbol. Errors: Other, if the library lacks it: it is too old or
  /// broken.
  template <typename Function> Status bind(const char *symbol, Function *&function) const {
    Result<void *> address = find(symbol);
    if (!address)
      return address.error();
    function = reinterpret_cast<Function *>(*address);
    return Status::ok();
  }

  /// Errors: Other, unless found >= least. The texts are the usual version names. Example: found
  /// 90500, "9.5.0", least 90600, "9.6".
  Status checkVersion(long found, const std::string &foundText, long least,
                      const std::string &leastText) const;

private:
  SharedLibrary(LibrarySpec spec, std::string soname, void *handle)
      : spec(std::move(spec)), soname(std::move(soname)), handle(handle) {}
  Result<void *> find(const char *symbol) const;

  LibrarySpec spec;
  std::string soname; // the one of spec.sonames that was found
  void *handle;
};

/// An entry (name, symbol, …) in a table's list of functions, used to load the table. It sets
/// `functions`.name to the symbol of `library`, or returns the error from the enclosing function.
#define TBC_BIND(name, symbol, ...)                                                                \
  if (Status status = library->bind(#symbol, functions.name); !status)                             \
    return status.error();

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_SHAREDLIBRARY_H

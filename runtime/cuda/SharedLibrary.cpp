//===- SharedLibrary.cpp - Libraries that are opened at run time -----------===//

#include "runtime/cuda/SharedLibrary.h"

#include <dlfcn.h>

namespace tbc::cuda {

Result<SharedLibrary> SharedLibrary::open(const LibrarySpec &spec) {
  std::string reasons;
  for (const std::string &soname : spec.sonames) {
    if (void *handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL))
      return SharedLibrary(spec, soname, handle);
    const char *reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason ? reason : soname);
  }
  return Error{ErrorCode::Other, spec.what + " cannot be loaded (" + reasons + "): " + spec.remedy};
}

Result<void *> SharedLibrary::find(const char *symbol) const {
  if (void *address = dlsym(handle, symbol))
    return address;
  return Error{ErrorCode::Other, spec.what + " (" + soname + ") has no function " + symbol +
                                     ", so it is too old or damaged: " + spec.remedy};
}

Status SharedLibrary::checkVersion(long found, const std::string &foundText, long least,
                                   const std::string &leastText) const {
  if (found >= least)
    return Status::ok();
  return Error{ErrorCode::Other, spec.what + " (" + soname + ") is version " + foundText +
                                     ", at least " + leastText + " is needed: " + spec.remedy};
}

} // namespace tbc::cuda

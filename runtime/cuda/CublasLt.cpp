//===- CublasLt.cpp - The used functions of cuBLASLt -----------------------===//

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/SharedLibrary.h"

namespace tbc::cuda {

/// From 12.0 on, a version is 10000 major + 100 minor + patch. Example: 120405 is 12.4.5.
static std::string versionText(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string versionOf(const CublasLt &library) { return versionText(library.getVersion()); }

Result<CublasLt> loadCublasLt(const std::vector<std::string> &sonames) {
  Result<SharedLibrary> library =
      SharedLibrary::open({"cuBLASLt", sonames,
                           "install CUDA's package libcublas-12-x, or nvidia-cublas-cu12 from PyPI "
                           "and its lib folder in LD_LIBRARY_PATH"});
  if (!library)
    return library.error();
  CublasLt functions;
  if (Status status = library->bind("cublasLtGetVersion", functions.getVersion); !status)
    return status.error();
  constexpr size_t least = 120000;
  size_t version = functions.getVersion();
  if (Status status = library->checkVersion(long(version), versionText(version), long(least),
                                            versionText(least));
      !status)
    return status.error();
  TBC_CUBLASLT_FUNCTIONS(TBC_BIND)
  if (Status status = library->bind("cublasLtGetStatusString", functions.getStatusString); !status)
    return status.error();
  return functions;
}

} // namespace tbc::cuda

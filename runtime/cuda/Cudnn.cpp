//===- Cudnn.cpp - The functions of cuDNN that are used --------------------===//

#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/SharedLibrary.h"

namespace tbc::cuda {

/// From 9.0 on 10000 major + 100 minor + patch.
static std::string versionText(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string versionOf(const Cudnn &library) { return versionText(library.getVersion()); }

Result<Cudnn> loadCudnn() {
  Result<SharedLibrary> library =
      SharedLibrary::open({"cuDNN",
                           {"libcudnn.so.9"},
                           "install NVIDIA's package cudnn9-cuda-12 (or -13), or nvidia-cudnn-cu12 "
                           "from PyPI and its lib folder in LD_LIBRARY_PATH"});
  if (!library)
    return library.error();
  Cudnn cudnn;
  if (Status status = library->bind("cudnnGetVersion", cudnn.getVersion); !status)
    return status.error();
  // Before, sums of an attention's gradient have to be set to zero by whoever calls.
  constexpr size_t least = 90600;
  size_t version = cudnn.getVersion();
  if (Status status = library->checkVersion(long(version), versionText(version), long(least),
                                            versionText(least));
      !status)
    return status.error();
#define TBC_BIND(name, symbol, ...)                                                                \
  if (Status status = library->bind(#symbol, cudnn.name); !status)                                 \
    return status.error();
  TBC_CUDNN_FUNCTIONS(TBC_BIND)
#undef TBC_BIND
  if (Status status = library->bind("cudnnGetErrorString", cudnn.getErrorString); !status)
    return status.error();
  if (Status status = library->bind("cudnnGetLastErrorString", cudnn.getLastError); !status)
    return status.error();
  return cudnn;
}

} // namespace tbc::cuda

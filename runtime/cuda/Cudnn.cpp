//===- Cudnn.cpp - The used functions of cuDNN -----------------------------===//

#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/SharedLibrary.h"

namespace tbc::cuda {

/// From 9.0 on, a version is 10000 major + 100 minor + patch. Example: 90600 is 9.6.0.
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
  Cudnn functions;
  if (Status status = library->bind("cudnnGetVersion", functions.getVersion); !status)
    return status.error();
  // Older versions expect the caller to zero the sums of an attention's gradient.
  constexpr size_t least = 90600;
  size_t version = functions.getVersion();
  if (Status status = library->checkVersion(long(version), versionText(version), long(least),
                                            versionText(least));
      !status)
    return status.error();
  TBC_CUDNN_FUNCTIONS(TBC_BIND)
  if (Status status = library->bind("cudnnGetErrorString", functions.getErrorString); !status)
    return status.error();
  if (Status status = library->bind("cudnnGetLastErrorString", functions.getLastError); !status)
    return status.error();
  return functions;
}

std::string cudnnRefusal(const Cudnn &library, CudnnCode code, const std::string &what) {
  const char *text = library.getErrorString(code);
  char details[512] = "";
  library.getLastError(details, sizeof details);
  details[sizeof details - 1] = '\0';
  return what + ": cuDNN says " + (text ? text : "error " + std::to_string(int(code))) +
         (details[0] ? std::string(" (") + details + ")" : "");
}

Status checkCudnn(const Cudnn &library, CudnnCode code, const std::string &what) {
  if (code == CudnnCode::Success)
    return Status::ok();
  return Error{ErrorCode::RankFailed, cudnnRefusal(library, code, what)};
}

} // namespace tbc::cuda

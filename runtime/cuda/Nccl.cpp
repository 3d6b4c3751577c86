//===- Nccl.cpp - The used functions of NCCL -------------------------------===//

#include "runtime/cuda/Nccl.h"
#include "runtime/cuda/SharedLibrary.h"

namespace tbc::cuda {

/// A version is 10000 major + 100 minor + patch from 2.9 on; before, 1000 major + 100 minor +
/// patch. Example: 21805 is 2.18.5.
static std::string versionText(int version) {
  int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

Result<Nccl> loadNccl() {
  Result<SharedLibrary> library = SharedLibrary::open(
      {"NCCL",
       {"libnccl.so.2"},
       "install the package libnccl2, or nvidia-nccl-cu12 from PyPI and its lib folder in "
       "LD_LIBRARY_PATH"});
  if (!library)
    return library.error();
  Nccl functions;
  // The version comes first: an old library lacks some of the functions.
  if (Status status = library->bind("ncclGetVersion", functions.getVersion); !status)
    return status.error();
  int version = 0;
  if (NcclCode code = functions.getVersion(&version); code != NcclCode::Success)
    return Error{ErrorCode::Other,
                 "NCCL does not say its version: error " + std::to_string(int(code))};
  constexpr int least = 21800;
  if (Status status =
          library->checkVersion(version, versionText(version), least, versionText(least));
      !status)
    return status.error();
  TBC_NCCL_FUNCTIONS(TBC_BIND)
  constexpr int leastToRegister = 21900;
  if (version >= leastToRegister) {
    TBC_NCCL_REGISTRATION(TBC_BIND)
  }
  if (Status status = library->bind("ncclGetErrorString", functions.getErrorString); !status)
    return status.error();
  if (Status status = library->bind("ncclGetLastError", functions.getLastError); !status)
    return status.error();
  return functions;
}

std::string versionOf(const Nccl &nccl) {
  int version = 0;
  return nccl.getVersion(&version) == NcclCode::Success ? versionText(version) : "";
}

Status checkNccl(const Nccl &nccl, NcclCode code, NcclHandle comm, const std::string &what) {
  // A non-blocking communicator returns InProgress while it works.
  if (code == NcclCode::Success || code == NcclCode::InProgress)
    return Status::ok();
  const char *text = nccl.getErrorString(code);
  const char *last = nccl.getLastError(comm);
  return Error{ErrorCode::RankFailed,
               what + ": " + (text ? text : "NCCL error " + std::to_string(int(code))) +
                   (last && *last ? " (" + std::string(last) + ")" : "") +
                   ": NCCL_DEBUG=INFO shows more"};
}

} // namespace tbc::cuda

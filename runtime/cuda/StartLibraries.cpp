//===- StartLibraries.cpp - Starting NVIDIA's libraries on a device ----------===//

#include "runtime/cuda/StartLibraries.h"
#include "runtime/cuda/Matmuls.h"

#include <thread>

namespace tbc::cuda {

static std::string ofDriver(const Device &device) {
  std::string version = versionOf(device.driver());
  return version.empty() ? "" : "; the driver is for " + version;
}

std::vector<std::string> cublasSonames(int driverVersion) {
  constexpr int oldest = 12, newest = 13;
  int major = driverVersion / 1000;
  std::vector<std::string> names;
  auto add = [&](int number) { names.push_back("libcublasLt.so." + std::to_string(number)); };
  for (int number = newest; number >= oldest; --number)
    if (number <= major)
      add(number);
  for (int number = oldest; number <= newest; ++number)
    if (number > major)
      add(number);
  return names;
}

/// Adds the versions of the library and of the driver to an error.
static Status withVersions(const Status &status, const Device &device, const std::string &library) {
  if (status)
    return status;
  return Error{status.error().code,
               status.error().message + " (" + library + ofDriver(device) + ")"};
}

/// Creates a handle of `library` and destroys it. `check` turns the library's code into a Status.
template <typename Handle, typename Library, typename Check>
static Status tryHandle(const DevicePtr &device, const Library &library, Check check,
                        const std::string &name) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  Handle handle = nullptr;
  auto code = library.create(&handle);
  if (code == decltype(code)::Success)
    code = library.destroy(handle);
  return withVersions(check(library, code, device->name() + ", starting " + name), *device,
                      name + " " + versionOf(library));
}

Status tryCublasLt(const DevicePtr &device, const CublasLt &library) {
  return tryHandle<CublasHandle>(device, library, checkCublas, "cuBLASLt");
}

Status tryCudnn(const DevicePtr &device, const Cudnn &library) {
  return tryHandle<CudnnHandle>(device, library, checkCudnn, "cuDNN");
}

/// Waits until the communicator is made.
static Status finishInit(const Nccl &library, NcclHandle comm, const std::string &what,
                         std::chrono::milliseconds timeout) {
  auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    NcclCode state = NcclCode::Success;
    NcclCode code = library.getAsyncError(comm, &state);
    if (code != NcclCode::Success || state != NcclCode::InProgress)
      return checkNccl(library, code != NcclCode::Success ? code : state, comm, what);
    if (std::chrono::steady_clock::now() > deadline)
      return Error{ErrorCode::HangDetected,
                   what + ": not connected after " + std::to_string(timeout.count()) + " ms"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status tryNccl(const DevicePtr &device, const Nccl &library, std::chrono::milliseconds timeout) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  const std::string what = device->name() + ", starting NCCL with one rank";
  const std::string version = "NCCL " + versionOf(library);
  NcclId id{};
  NcclCode code = library.getUniqueId(&id);
  NcclConfig config;
  config.blocking = 0;
  NcclHandle comm = nullptr;
  if (code == NcclCode::Success)
    code = library.initRank(&comm, 1, id, 0, &config);
  Status status = checkNccl(library, code, comm, what);
  if (status)
    status = finishInit(library, comm, what, timeout);
  if (status)
    status = checkNccl(library, library.destroy(comm), nullptr, what);
  else if (comm)
    library.abort(comm);
  return withVersions(status, *device, version);
}

Result<CublasLt> loadCublasLtBySoname(const std::string &soname) { return loadCublasLt({soname}); }

Result<CublasLt> startedCublasLt(const DevicePtr &device, std::vector<std::string> &refusals,
                                 const CublasLoader &load) {
  int version = 0;
  if (Status status =
          device->check(device->driver().driverGetVersion(&version), "the driver's version");
      !status)
    return status.error();
  std::string reasons;
  for (const std::string &soname : cublasSonames(version)) {
    Result<CublasLt> library = load(soname);
    Status status = library ? tryCublasLt(device, *library) : Status(library.error());
    if (status)
      return library;
    if (library)
      refusals.push_back(status.error().message);
    reasons += (reasons.empty() ? "" : "; ") + status.error().message;
  }
  return Error{ErrorCode::Other, reasons};
}

Result<Cudnn> startedCudnn(const DevicePtr &device) {
  Result<Cudnn> library = loadCudnn();
  if (library)
    if (Status status = tryCudnn(device, *library); !status)
      return status.error();
  return library;
}

} // namespace tbc::cuda

//===- Driver.cpp - The used functions of the CUDA driver ------------------===//

#include "runtime/cuda/Driver.h"
#include "runtime/cuda/SharedLibrary.h"

namespace tbc::cuda {

static constexpr int leastVersion = 12000; // 1000 major + 10 minor

static std::string versionText(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Opens a driver of a supported version, without initializing it.
static Result<Driver> openDriver() {
  Result<SharedLibrary> library = SharedLibrary::open(
      {"the CUDA driver",
       {"libcuda.so.1"},
       "install NVIDIA's driver, version 525 or newer; in a container, start it with the GPUs "
       "(docker run --gpus all)"});
  if (!library)
    return library.error();
  Driver functions;
  TBC_CUDA_DRIVER_FUNCTIONS(TBC_BIND)
  int version = 0;
  if (Status status =
          checkDriver(functions, functions.driverGetVersion(&version), "cuDriverGetVersion");
      !status)
    return status.error();
  if (Status status = library->checkVersion(version, versionText(version), leastVersion,
                                            versionText(leastVersion));
      !status)
    return status.error();
  return functions;
}

Status findDriver() {
  Result<Driver> driver = openDriver();
  return driver ? Status::ok() : Status(driver.error());
}

Result<Driver> loadDriver() {
  Result<Driver> driver = openDriver();
  if (!driver)
    return driver.error();
  if (Status status = checkDriver(*driver, driver->init(0), "starting the CUDA driver"); !status)
    return Error{ErrorCode::Other, status.error().message};
  return driver;
}

std::string versionOf(const Driver &driver) {
  int version = 0;
  return driver.driverGetVersion(&version) == DriverCode::Success ? versionText(version) : "";
}

/// Returns the remedy for an error, or an empty text.
static const char *remedyOf(DriverCode code) {
  switch (code) {
  case DriverCode::OutOfMemory:
    return ": end what else uses the device, or plan with a smaller --memory-limit";
  case DriverCode::NoDevice:
    return ": no GPU is visible; look at nvidia-smi and CUDA_VISIBLE_DEVICES";
  case DriverCode::InvalidDevice:
    return ": fewer GPUs are visible than ranks run on this machine; look at CUDA_VISIBLE_DEVICES";
  case DriverCode::NoBinaryForGpu:
    return ": the program was compiled for another architecture; compile it for this one";
  case DriverCode::IllegalAddress:
  case DriverCode::LaunchFailed:
    return ": the device is lost to this process; resume from the last checkpoint";
  default:
    return "";
  }
}

Status checkDriver(const Driver &driver, DriverCode code, const std::string &what) {
  if (code == DriverCode::Success)
    return Status::ok();
  const char *name = nullptr, *text = nullptr;
  driver.getErrorName(code, &name);
  driver.getErrorString(code, &text);
  return Error{ErrorCode::RankFailed,
               what + ": " + (name ? name : "CUDA error " + std::to_string(int(code))) +
                   (text ? " (" + std::string(text) + ")" : "") + remedyOf(code)};
}

} // namespace tbc::cuda

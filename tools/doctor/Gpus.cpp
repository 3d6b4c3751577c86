//===- Gpus.cpp - NVIDIA's GPUs and libraries --------------------------------===//

#include "tools/doctor/Doctor.h"

#include "runtime/cuda/StartLibraries.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>

namespace tbc::doctor {

static std::string gibibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", double(bytes) / double(int64_t(1) << 30));
  return text;
}

GpuLibraries gpuLibraries() {
  Result<cuda::Driver> driver = cuda::loadDriver();
  int version = 0; // without a driver any cuBLASLt is accepted
  if (!driver || driver->driverGetVersion(&version) != cuda::DriverCode::Success)
    version = 0;
  return {cuda::findDriver(), driver, cuda::loadNccl(),
          cuda::loadCublasLt(cuda::cublasSonames(version)), cuda::loadCudnn()};
}

static Finding driverOf(const GpuLibraries &libraries) {
  if (libraries.driver)
    return {"CUDA driver", State::Ok, "for " + versionOf(*libraries.driver), ""};
  // A driver that is installed but does not start is always a problem.
  if (libraries.installed)
    return {"CUDA driver", State::Problem, libraries.driver.error().message,
            "look at nvidia-smi; a driver that was updated needs a restart, a container needs its "
            "GPUs (docker run --gpus all)"};
  return {"CUDA driver", State::Missing, libraries.driver.error().message, "only for GPUs"};
}

/// Examines one GPU. Sets `model` to its model if it could be opened.
static Finding gpu(const cuda::Driver &driver, int ordinal, std::string &model) {
  Finding finding{"GPU " + std::to_string(ordinal), State::Ok, "", ""};
  auto device = cuda::Device::open(driver, ordinal);
  if (!device)
    return {finding.name, State::Problem, device.error().message,
            "nvidia-smi shows its state; choose others by CUDA_VISIBLE_DEVICES"};
  model = (*device)->model();
  size_t freeBytes = 0, totalBytes = 0;
  Status status = (*device)->check(driver.memGetInfo(&freeBytes, &totalBytes), "its memory");
  if (!status)
    return {finding.name, State::Problem, status.error().message, "nvidia-smi shows its state"};
  finding.found = model + ", " + gibibytes(totalBytes) + ", " + gibibytes(freeBytes) + " free";
  constexpr int leastCapability = 80; // of the kernels compiled by default
  constexpr double mostTaken = 0.1;   // share used by drivers and contexts
  if ((*device)->capability() < leastCapability) {
    finding.state = State::Problem;
    finding.advice = "kernels are compiled for sm_80 and later: tbc compile --arch sm_" +
                     std::to_string((*device)->capability());
  } else if (double(totalBytes - freeBytes) > mostTaken * double(totalBytes)) {
    finding.state = State::Problem;
    finding.advice = "something else uses its memory: end what nvidia-smi lists, or plan with "
                     "--memory-limit";
  }
  return finding;
}

static Finding modelsOf(const std::vector<std::string> &models) {
  for (size_t i = 1; i < models.size(); ++i)
    if (models[i] != models[0])
      return {"GPU models", State::Problem, models[0] + "; " + models[i],
              "ranks of a job need GPUs of one model: choose them by CUDA_VISIBLE_DEVICES"};
  return {"GPU models", State::Ok, "all alike", ""};
}

static Finding peersOf(const cuda::Driver &driver, int count) {
  std::string without;
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      cuda::DeviceId device = 0, peer = 0;
      int can = 0;
      bool isAsked = from != to && driver.deviceGet(&device, from) == cuda::DriverCode::Success &&
                     driver.deviceGet(&peer, to) == cuda::DriverCode::Success &&
                     driver.deviceCanAccessPeer(&can, device, peer) == cuda::DriverCode::Success;
      if (from != to && (!isAsked || !can))
        without +=
            (without.empty() ? "" : ", ") + std::to_string(from) + " to " + std::to_string(to);
    }
  if (without.empty())
    return {"GPU peer access", State::Ok, "between all", ""};
  return {"GPU peer access", State::Problem, "not from GPU " + without,
          "these exchange bytes by way of the host, slowly: see nvidia-smi topo -m, and turn off "
          "the IOMMU or PCIe ACS where GPUs share a switch"};
}

/// Examines a library that GPU training needs; `isNeeded`: on this machine. `start` starts it on a
/// GPU; empty if no GPU opens.
template <typename T>
static Finding libraryOf(const std::string &name, const Result<T> &library, bool isNeeded,
                         const std::string &use, const std::function<Status(const T &)> &start) {
  if (!library)
    return {name, isNeeded ? State::Problem : State::Missing, library.error().message, use};
  Status status = start ? start(*library) : Status::ok();
  if (status)
    return {name, State::Ok, versionOf(*library), ""};
  return {name, State::Problem, status.error().message,
          "it does not start: install one for the CUDA version of the driver; " + use};
}

std::vector<Finding> examineGpus(const GpuLibraries &libraries) {
  std::vector<Finding> findings = {driverOf(libraries)};
  int count = 0;
  if (libraries.driver && libraries.driver->deviceGetCount(&count) != cuda::DriverCode::Success)
    count = 0;
  if (libraries.driver && count == 0)
    findings.push_back(
        {"GPUs", State::Problem, "none is visible", "look at nvidia-smi and CUDA_VISIBLE_DEVICES"});
  std::vector<std::string> models;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    std::string model;
    findings.push_back(gpu(*libraries.driver, ordinal, model));
    if (!model.empty())
      models.push_back(model);
  }
  if (count > 1) {
    findings.push_back(modelsOf(models));
    findings.push_back(peersOf(*libraries.driver, count));
  }
  // The libraries start on the first GPU, if there is one.
  auto device = count > 0 ? cuda::Device::open(*libraries.driver, 0)
                          : Result<cuda::DevicePtr>(Error{ErrorCode::Other, "no GPU"});
  std::function<Status(const cuda::Nccl &)> startNccl;
  std::function<Status(const cuda::CublasLt &)> startCublas;
  std::function<Status(const cuda::Cudnn &)> startCudnn;
  if (device) {
    constexpr std::chrono::minutes timeout(1);
    startNccl = [&](const cuda::Nccl &library) { return tryNccl(*device, library, timeout); };
    startCublas = [&](const cuda::CublasLt &library) { return tryCublasLt(*device, library); };
    startCudnn = [&](const cuda::Cudnn &library) { return tryCudnn(*device, library); };
  }
  findings.push_back(
      libraryOf("NCCL", libraries.nccl, count > 1, "only for several GPUs", startNccl));
  findings.push_back(
      libraryOf("cuBLASLt", libraries.cublas, count > 0,
                count > 0 ? "without it plain kernels multiply matrices, slowly" : "only for GPUs",
                startCublas));
  findings.push_back(libraryOf(
      "cuDNN", libraries.cudnn, /*isNeeded=*/false,
      count > 0 ? "without it plain kernels do attention and convolution, slowly" : "only for GPUs",
      startCudnn));
  return findings;
}

} // namespace tbc::doctor

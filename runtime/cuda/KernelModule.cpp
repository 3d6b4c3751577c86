//===- KernelModule.cpp - The compiled kernels of a program on a GPU -------===//

#include "runtime/cuda/KernelModule.h"
#include "runtime/abi/Sha256.h"

#include <algorithm>

namespace tbc::cuda {

static Error usage(const std::string &message) { return Error{ErrorCode::Usage, message}; }

Status LaunchableKernel::launch(const Device &device, const Stream &stream,
                                void **arguments) const {
  Status status =
      device.check(device.driver().launchKernel(function, blocks, 1, 1, threads, 1, 1, sharedBytes,
                                                stream.handle(), arguments, nullptr),
                   "launching kernel " + symbol);
  for (size_t i = 0; status && i < then.size(); ++i)
    status = then[i].launch(device, stream, arguments);
  return status;
}

Result<std::shared_ptr<const KernelModule>>
KernelModule::load(DevicePtr device, const FolderFiles &files, const std::string &programHash) {
  Result<std::string> text = files(program::cudaKernelsFile);
  if (!text)
    return text.error();
  Result<program::CudaKernels> list = program::readCudaKernels(*text);
  if (!list)
    return list.error();
  if (list->programSha256 != programHash)
    return usage(std::string(program::cudaKernelsFile) +
                 " belongs to another program.json than the one beside it; compile again");
  std::shared_ptr<KernelModule> module(new KernelModule(std::move(device)));
  module->opsOfHost = list->hostOps;
  if (Status status = module->loadImage(*list, files); !status)
    return status.error();
  for (const program::CudaKernel &kernel : list->kernels) {
    auto prepared = module->prepare(kernel);
    if (!prepared)
      return prepared.error();
    module->kernels[kernel.symbol] = *prepared;
  }
  // A few blocks per multiprocessor keep it busy; each block handles several elements.
  constexpr int64_t blocksEach = 8;
  for (const program::CudaAccumulator &accumulator : list->accumulators) {
    auto prepared =
        module->prepare(accumulator.symbol, blocksEach * module->device->numMultiprocessors(),
                        accumulator.threads, 0);
    if (!prepared)
      return prepared.error();
    module->accumulators[{accumulator.slot, accumulator.value}] = *prepared;
  }
  return std::shared_ptr<const KernelModule>(module);
}

/// Loads the image of the latest architecture that the device supports, as machine code if
/// available and if the driver takes it.
Status KernelModule::loadImage(const program::CudaKernels &list, const FolderFiles &files) {
  std::vector<const program::CudaImage *> fitting;
  std::string all;
  for (const program::CudaImage &image : list.images) {
    if (image.code == program::CudaCode::Ptx)
      all += (all.empty() ? "sm_" : ", sm_") + std::to_string(image.architecture);
    if (isExecutedBy(image, device->capability()))
      fitting.push_back(&image);
  }
  if (fitting.empty())
    return usage(device->name() + " cannot execute the program's kernels, which are for " +
                 (all.empty() ? "no architecture" : all + " and later") + "; compile for it");
  auto rank = [](const program::CudaImage *image) {
    return std::pair(image->architecture, image->code == program::CudaCode::Cubin);
  };
  std::sort(fitting.begin(), fitting.end(),
            [&](const auto *one, const auto *other) { return rank(one) > rank(other); });
  Status status;
  for (const program::CudaImage *image : fitting) {
    Result<std::string> bytes = files(image->file);
    if (!bytes)
      return bytes.error();
    if (sha256Hex(*bytes) != image->sha256)
      return usage(image->file + " is not what was compiled (its SHA-256 differs); compile again");
    DriverCode code = device->driver().moduleLoadData(&module, bytes->c_str(), 0, nullptr, nullptr);
    status = device->check(code, "loading " + image->file);
    // A driver knows no machine code of a ptxas of a later CUDA (NVIDIA's "CUDA Compatibility"),
    // but translates the PTX beside it.
    if (image->code != program::CudaCode::Cubin ||
        (code != DriverCode::InvalidImage && code != DriverCode::NoBinaryForGpu))
      break;
  }
  return status;
}

Result<LaunchableKernel> KernelModule::prepare(const program::CudaKernel &kernel) const {
  std::vector<LaunchableKernel> launches;
  for (const program::CudaLaunch &launch : kernel.launches()) {
    auto prepared = prepare(launch.symbol, launch.blocks, launch.threads, launch.sharedBytes);
    if (!prepared)
      return prepared;
    launches.push_back(std::move(*prepared));
  }
  LaunchableKernel whole = std::move(launches.front());
  whole.then.assign(launches.begin() + 1, launches.end());
  whole.workspaceBytes = kernel.workspaceBytes;
  return whole;
}

/// Finds a kernel and checks its launch against the limits of the device and its registers.
Result<LaunchableKernel> KernelModule::prepare(const std::string &symbol, int64_t blocks,
                                               int threads, int sharedBytes) const {
  const Driver &driver = device->driver();
  LaunchableKernel kernel;
  kernel.symbol = symbol;
  if (Status status = device->check(
          driver.moduleGetFunction(&kernel.function, module, symbol.c_str()), "kernel " + symbol);
      !status)
    return status.error();
  int functionThreads = 0, staticBytes = 0;
  for (auto [value, attribute] :
       {std::pair(&functionThreads, FunctionAttribute::MaxThreadsPerBlock),
        std::pair(&staticBytes, FunctionAttribute::StaticSharedBytes)})
    if (Status status =
            device->check(driver.functionGetAttribute(value, attribute, kernel.function),
                          "the attributes of kernel " + symbol);
        !status)
      return status.error();
  auto beyond = [&](int64_t asked, const char *what, int64_t most) {
    return usage("kernel " + symbol + " takes " + std::to_string(asked) + " " + what + ", " +
                 device->name() + " allows " + std::to_string(most) + "; compile for it");
  };
  int mostThreads = std::min(functionThreads, device->maxThreadsPerBlock());
  if (threads > mostThreads)
    return beyond(threads, "threads a block", mostThreads);
  if (blocks > device->maxBlocks())
    return beyond(blocks, "blocks", device->maxBlocks());
  if (staticBytes + sharedBytes > device->maxSharedBytes())
    return beyond(staticBytes + sharedBytes, "bytes of shared memory", device->maxSharedBytes());
  // More shared memory than this must be requested.
  constexpr int plainSharedBytes = 48 << 10;
  if (staticBytes + sharedBytes > plainSharedBytes)
    if (Status status = device->check(
            driver.functionSetAttribute(kernel.function, FunctionAttribute::MaxDynamicSharedBytes,
                                        sharedBytes),
            "the shared memory of kernel " + symbol);
        !status)
      return status.error();
  kernel.blocks = unsigned(blocks);
  kernel.threads = unsigned(threads);
  kernel.sharedBytes = unsigned(sharedBytes);
  return kernel;
}

KernelModule::~KernelModule() {
  if (module && !device->isGivenUp()) // unloading waits for the device
    device->driver().moduleUnload(module);
}

const LaunchableKernel *KernelModule::find(const std::string &symbol) const {
  auto found = kernels.find(symbol);
  return found == kernels.end() ? nullptr : &found->second;
}

const LaunchableKernel *KernelModule::findAccumulator(kernels::DType slot,
                                                      kernels::DType value) const {
  auto found = accumulators.find({slot, value});
  return found == accumulators.end() ? nullptr : &found->second;
}

} // namespace tbc::cuda

//===- KernelModule.h - The compiled kernels of a program on a GPU ---------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_KERNELMODULE_H
#define TBC_RUNTIME_CUDA_KERNELMODULE_H

#include "runtime/abi/CudaKernels.h"
#include "runtime/cuda/Device.h"

#include <functional>
#include <map>

namespace tbc::cuda {

/// A kernel that is on the device and within its launch limits.
struct LaunchableKernel {
  FunctionHandle function = nullptr;
  unsigned blocks = 1, threads = 1, sharedBytes = 0;
  std::string symbol;
  std::vector<LaunchableKernel> then = {}; // launches after it, with the same arguments
  int64_t workspaceBytes = 0;              // see CudaKernel; 0: there is no such parameter

  /// Launches all of it. `arguments` point to the values of its parameters. Addresses of a region's
  /// buffers lie one behind the other, as a kernel may take them as one array.
  Status launch(const Device &device, const Stream &stream, void **arguments) const;
};

/// Returns the content of a file in a program's folder, by its name.
using FolderFiles = std::function<Result<std::string>(const std::string &name)>;

/// The kernels of runtime/abi/CudaKernels.h, loaded for one device.
class KernelModule {
public:
  /// Loads the kernels of a program whose program.json has the SHA-256 `programHash`. `files` reads
  /// files in its folder. Errors: those of `files`; Usage, for a file that is malformed, damaged or
  /// of another program, for no image that the device can execute, and for launches beyond the
  /// device's limits, all by name; RankFailed, for refusals of the driver.
  static Result<std::shared_ptr<const KernelModule>>
  load(DevicePtr device, const FolderFiles &files, const std::string &programHash);
  ~KernelModule();
  KernelModule(const KernelModule &) = delete;
  KernelModule &operator=(const KernelModule &) = delete;

  /// Returns null if there is no kernel of this name.
  const LaunchableKernel *find(const std::string &symbol) const;
  /// Returns the kernel that adds values to slots, for any number of blocks; null if there is no
  /// kernel for these types.
  const LaunchableKernel *findAccumulator(kernels::DType slot, kernels::DType value) const;

  /// Ops that the program leaves to the host (CudaKernels).
  const std::vector<std::string> &hostOps() const { return opsOfHost; }

private:
  explicit KernelModule(DevicePtr device) : device(std::move(device)) {}
  Status loadImage(const program::CudaKernels &kernels, const FolderFiles &files);
  Result<LaunchableKernel> prepare(const program::CudaKernel &kernel) const;
  Result<LaunchableKernel> prepare(const std::string &symbol, int64_t blocks, int threads,
                                   int sharedBytes) const;

  DevicePtr device;
  ModuleHandle module = nullptr;
  std::vector<std::string> opsOfHost;
  std::map<std::string, LaunchableKernel> kernels;
  std::map<std::pair<kernels::DType, kernels::DType>, LaunchableKernel> accumulators;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_KERNELMODULE_H

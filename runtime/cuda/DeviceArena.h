//===- DeviceArena.h - The arenas of a rank with a GPU ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICEARENA_H
#define TBC_RUNTIME_CUDA_DEVICEARENA_H

#include "runtime/cuda/Streams.h"
#include "runtime/exec/RankMemory.h"

namespace tbc::cuda {

/// The device memory of a rank, one allocation. Tensors are copied when they are stored or loaded;
/// kernels use addresses.
class DeviceArena : public runtime::Arena {
public:
  /// `memory`: the whole arena. `arith`: Native, or Residue251 with numbers in the bytes of their
  /// types.
  static std::unique_ptr<DeviceArena> create(DeviceMemory memory, std::shared_ptr<Streams> streams,
                                             kernels::Arith arith);

  // These throw KernelError with the driver's message.
  void store(int64_t offset, const kernels::Tensor &tensor) override;
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const override;
  void zero(int64_t offset, const kernels::TensorType &type) override;

  DeviceAddress at(int64_t offset) const { return memory.address() + DeviceAddress(offset); }
  int64_t bytes() const { return memory.bytes(); }

private:
  DeviceArena(DeviceMemory memory, std::shared_ptr<Streams> streams, kernels::Arith arith)
      : memory(std::move(memory)), streams(std::move(streams)), arith(arith) {}

  DeviceMemory memory;
  std::shared_ptr<Streams> streams;
  const kernels::Arith arith;
};

/// The pinned host memory of a rank, filled and read by copies of the Program.
class PinnedArena : public runtime::Arena {
public:
  static Result<std::unique_ptr<PinnedArena>> create(const DevicePtr &device,
                                                     std::shared_ptr<Streams> streams,
                                                     int64_t bytes, kernels::Arith arith);

  // These wait for running copies, and throw KernelError with the driver's message.
  void store(int64_t offset, const kernels::Tensor &tensor) override;
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const override;
  void zero(int64_t offset, const kernels::TensorType &type) override;

  unsigned char *at(int64_t offset) const { return memory.data() + offset; }

private:
  PinnedArena(PinnedMemory memory, std::shared_ptr<Streams> streams, kernels::Arith arith)
      : memory(std::move(memory)), streams(std::move(streams)), arith(arith) {}

  PinnedMemory memory;
  std::shared_ptr<Streams> streams;
  const kernels::Arith arith;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICEARENA_H

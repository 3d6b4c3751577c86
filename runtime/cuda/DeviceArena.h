//===- DeviceArena.h - The memory plan of a rank on its GPU ----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICEARENA_H
#define TBC_RUNTIME_CUDA_DEVICEARENA_H

#include "runtime/cuda/Device.h"
#include "runtime/exec/RankMemory.h"

#include <vector>

namespace tbc::cuda {

/// The streams of a rank. Kernels run in `compute`. Copies from and to the host run in `copy`,
/// through pinned memory, a piece after the other, so that packing one and moving another go on at
/// the same time. Used by one thread at a time, any.
class Streams {
public:
  static Result<std::shared_ptr<Streams>> create(const DevicePtr &device);

  const Stream &compute() const { return computeStream; }

  /// After what is in `compute` now, and before what comes there next. The bytes may change as soon
  /// as it returns.
  Status upload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  /// After what is in `compute` now; waits for it.
  Status download(unsigned char *to, DeviceAddress from, int64_t bytes);
  /// Waits for all of `compute`.
  Status wait();
  /// `what`, which has to stay, was launched in `compute`: for errors that show later.
  void note(const std::string &what);

private:
  struct Stage {
    PinnedMemory memory;
    Event done; // what its bytes were used for last
  };
  Status uploadPieces(DeviceAddress to, const unsigned char *from, int64_t bytes);
  Status downloadPieces(unsigned char *to, DeviceAddress from, int64_t bytes);
  Status explain(const Status &status) const;
  Result<Stage *> nextStage();
  Status order(const Stream &before, const Event &event, const Stream &after) const;

  DevicePtr device;
  // Streams last, so that they end before what their operations use is given back.
  std::vector<Stage> stages;
  size_t numStaged = 0;
  const std::string *oldest = nullptr, *newest = nullptr; // noted since the last wait
  int64_t numUnderWay = 0;
  Event computed, copied;
  Stream computeStream, copyStream;
};

/// One allocation of a device, that holds what a rank holds. A tensor is moved when it is stored or
/// loaded; kernels find it by its address.
class DeviceArena : public runtime::Arena {
public:
  static Result<std::unique_ptr<DeviceArena>> create(const DevicePtr &device,
                                                     std::shared_ptr<Streams> streams,
                                                     int64_t bytes, const std::string &what);

  // These throw KernelError with what the driver says.
  void store(int64_t offset, const kernels::Tensor &tensor) override;
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const override;

  DeviceAddress at(int64_t offset) const { return memory.address() + DeviceAddress(offset); }

private:
  DeviceArena(DeviceMemory memory, std::shared_ptr<Streams> streams)
      : memory(std::move(memory)), streams(std::move(streams)) {}

  DeviceMemory memory;
  std::shared_ptr<Streams> streams;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICEARENA_H

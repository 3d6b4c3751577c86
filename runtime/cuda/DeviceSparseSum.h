//===- DeviceSparseSum.h - Compressed sums of gradients on a GPU ------------===//
//
// Part of tbc. Plain C++. runtime/exec/SparseSum.h for operands, results and residuals in device
// memory, with the same bits. Messages use its communicator. Every call only enqueues work in a
// stream; it never waits.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICESPARSESUM_H
#define TBC_RUNTIME_CUDA_DEVICESPARSESUM_H

#include "runtime/cuda/CudaCollectives.h"
#include "runtime/cuda/KernelModule.h"
#include "runtime/cuda/Streams.h"
#include "runtime/exec/SparseSum.h"

namespace tbc::cuda {

class DeviceSparseSum {
public:
  /// `layout` and `kernels` outlive it; residuals are 0. The residuals take 4 bytes per element of
  /// device memory, beside the memory plan. Errors: Usage, if the Program was compiled without the
  /// kernels; RankFailed, if memory is short.
  static Result<std::unique_ptr<DeviceSparseSum>> create(const DevicePtr &device,
                                                         const KernelModule &kernels,
                                                         const runtime::SparseLayout &layout,
                                                         Streams &streams);

  /// Enqueues a kernel whose arguments are all addresses.
  using LaunchFn = std::function<void(const LaunchableKernel &, std::vector<DeviceAddress>)>;

  /// Executes the sum once; the other arguments are those of communicateOnDevice. Messages lie in
  /// scratch memory. Results may overlap operands.
  Status run(DeviceCommunicator &communicator, const program::Instruction &instruction,
             const std::vector<DeviceTensor> &inputs, const std::vector<DeviceTensor> &results,
             bool isUniform, const Stream &stream, const ScratchFn &scratch, const LaunchFn &launch,
             const std::string &place) const;

  /// Returns all residuals after the enqueued work.
  Result<std::vector<float>> residuals(Streams &streams) const;
  Status setResiduals(Streams &streams, const std::vector<float> &elements);

private:
  using Slice = runtime::SparseLayout::Slice;
  struct Kernels {
    const LaunchableKernel *add, *count, *choose, *tally, *take, *sum;
  };
  /// Addresses in scratch memory.
  struct Places {
    DeviceAddress state, counts, tallies, warpTallies, sent, received;
  };
  explicit DeviceSparseSum(const runtime::SparseLayout &layout) : layout(layout) {}

  int64_t messageBytes() const { return int64_t(layout.messageWords) * 4; }
  DeviceAddress residualOf(const Slice &slice) const {
    return memory.address() + DeviceAddress(slice.begin * 4);
  }
  /// Returns the address of a slice's numbers (SparseKernels.h): its sizes, its initial state, and
  /// those of its sum.
  DeviceAddress numbersOf(size_t slice) const;
  Status addGradients(const std::vector<DeviceTensor> &inputs, const Stream &stream,
                      const ScratchFn &scratch, const LaunchFn &launch) const;
  Status takeMessages(const Places &at, const Stream &stream, const LaunchFn &launch) const;
  Status exchange(DeviceCommunicator &communicator, const Places &at, const Stream &stream,
                  const std::string &place) const;
  Status addUp(const Places &at, const std::vector<DeviceTensor> &results, const Stream &stream,
               const LaunchFn &launch) const;

  const runtime::SparseLayout &layout;
  Kernels kernels{};
  DeviceMemory memory; // the residuals, then the numbers of each slice
  int64_t numbersBegin = 0;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICESPARSESUM_H

//===- DeviceSparseSum.h - Sums of the largest elements on a GPU ------------===//
//
// Part of tbc. Plain C++. The same as runtime/exec/SparseSum.h, to the bit, where operands, results
// and residuals lie in the memory of a device and messages go over its communicator: everything is
// put into a stream, and nobody waits.
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
  /// `layout` and `kernels` outlive it; residuals are 0. They take 4 bytes an element of the
  /// device's memory, beside the memory plan. Errors: Usage, the Program was compiled without the
  /// kernels; RankFailed, of memory.
  static Result<std::unique_ptr<DeviceSparseSum>> create(const DevicePtr &device,
                                                         const KernelModule &kernels,
                                                         const runtime::SparseLayout &layout,
                                                         Streams &streams);

  /// Puts a kernel with these arguments, all of which are addresses, into the stream.
  using LaunchFn = std::function<void(const LaunchableKernel &, std::vector<DeviceAddress>)>;

  /// Executes it once, with the other arguments as of communicateOnDevice. What it sends lies in
  /// scratch memory. Results may lie over operands.
  Status run(DeviceCommunicator &communicator, const program::Instruction &instruction,
             const std::vector<DeviceTensor> &inputs, const std::vector<DeviceTensor> &results,
             bool isUniform, const Stream &stream, const ScratchFn &scratch, const LaunchFn &launch,
             const std::string &place) const;

  /// All its residuals, as they are after what is in the streams.
  Result<std::vector<float>> residuals(Streams &streams) const;
  Status setResiduals(Streams &streams, const std::vector<float> &elements);

private:
  using Slice = runtime::SparseLayout::Slice;
  struct Kernels {
    const LaunchableKernel *add, *count, *choose, *tally, *take, *sum;
  };
  /// Where things are in scratch memory.
  struct Places {
    DeviceAddress state, counts, tallies, warpTallies, sent, received;
  };
  explicit DeviceSparseSum(const runtime::SparseLayout &layout) : layout(layout) {}

  int64_t messageBytes() const { return int64_t(layout.messageWords) * 4; }
  DeviceAddress residualOf(const Slice &slice) const {
    return memory.address() + DeviceAddress(slice.begin * 4);
  }
  /// The numbers of a slice (SparseKernels.h): its sizes, its first state, those of its sum.
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

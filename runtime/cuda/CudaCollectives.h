//===- CudaCollectives.h - A Program's communication on a GPU --------------===//
//
// Part of tbc. Plain C++. runtime/exec/MemoryCollectives.h for operands and results in device
// memory. Every call only enqueues work in a stream; it never waits.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDACOLLECTIVES_H
#define TBC_RUNTIME_CUDA_CUDACOLLECTIVES_H

#include "runtime/cuda/DeviceCommunicator.h"
#include "runtime/exec/MemoryCollectives.h"

#include <functional>

namespace tbc::cuda {

/// An operand or result.
struct DeviceTensor {
  DeviceAddress address = 0;
  kernels::TensorType type;
  int64_t bytes() const { return program::sizeBytes(type); }
};

/// Returns `bytes` of device memory, valid until the next call for the same stream. KernelError if
/// memory is short.
using ScratchFn = std::function<DeviceAddress(int64_t bytes)>;

/// A range of device memory.
struct DeviceRun {
  DeviceAddress address = 0;
  int64_t bytes = 0;
  bool operator==(const DeviceRun &o) const { return address == o.address && bytes == o.bytes; }
};
using DeviceRuns = std::vector<DeviceRun>;

/// A copy of `rows` rows of `rowBytes` each.
struct RowCopy {
  DeviceAddress to = 0, from = 0;
  int64_t toPitch = 0, fromPitch = 0, rowBytes = 0, rows = 1;
};

/// Returns the fewest strided copies that move the bytes of one list, in order, to another list of
/// the same size. Each has equal rows at equal distances. Example: 3 runs of 8 bytes, 32 bytes
/// apart, to contiguous memory are one copy of 3 rows.
std::vector<RowCopy> rowCopies(const DeviceRuns &from, const DeviceRuns &to);
Status copyRuns(const Stream &stream, const DeviceRuns &from, const DeviceRuns &to);

/// Returns the ranges of a part of a tensor that begins at `base`.
DeviceRuns runsOf(const runtime::Stretches &part, DeviceAddress base);

/// Returns whether `communicateOnDevice` can execute the instruction: a collective, slice or
/// message of types that the communicator reduces. It cannot reduce residues. Copies to and from
/// the host are excluded.
bool canCommunicateOnDevice(const DeviceCommunicator *communicator,
                            const program::Instruction &instruction,
                            const std::vector<DeviceTensor> &inputs,
                            kernels::Arith arith = kernels::Arith::Native);

/// Enqueues the instruction in the stream. Slices need no communicator. Results may overlap
/// operands. Layouts that NCCL cannot take directly go through scratch memory. `isUniform`: all
/// ranks of the group have one memory plan, so they choose scratch memory alike, as registered
/// memory requires.
Status communicateOnDevice(DeviceCommunicator *communicator,
                           const program::Instruction &instruction,
                           const runtime::GroupPlace &group, const runtime::MemoryLayout &layout,
                           const std::vector<DeviceTensor> &inputs,
                           const std::vector<DeviceTensor> &results, bool isUniform,
                           const Stream &stream, const ScratchFn &scratch,
                           const std::string &place);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDACOLLECTIVES_H

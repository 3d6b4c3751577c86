//===- CudaCollectives.h - A Program's communication on a GPU --------------===//
//
// Part of tbc. Plain C++. The same as runtime/exec/MemoryCollectives.h where operands and results
// lie in the memory of a device: everything is put into a stream, and nobody waits.
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

/// Memory of a device at an address that is good until the next call for the same stream, `bytes`
/// large. KernelError: there is none.
using ScratchFn = std::function<DeviceAddress(int64_t bytes)>;

/// A stretch of a device's memory.
struct DeviceRun {
  DeviceAddress address = 0;
  int64_t bytes = 0;
  bool operator==(const DeviceRun &o) const { return address == o.address && bytes == o.bytes; }
};
using DeviceRuns = std::vector<DeviceRun>;

/// `rows` rows of `rowBytes` each.
struct RowCopy {
  DeviceAddress to = 0, from = 0;
  int64_t toPitch = 0, fromPitch = 0, rowBytes = 0, rows = 1;
};

/// The fewest copies of equal rows at equal distances, in order, that move the bytes of one list to
/// the places of another of the same size.
std::vector<RowCopy> rowCopies(const DeviceRuns &from, const DeviceRuns &to);
Status copyRuns(const Stream &stream, const DeviceRuns &from, const DeviceRuns &to);

/// A part of what begins at `base`.
DeviceRuns runsOf(const runtime::Stretches &part, DeviceAddress base);

/// Whether `communicateOnDevice` executes it: a collective, slice or message, of types that the
/// communicator reduces; of residues there are none. Copies from and to the host are not.
bool canCommunicateOnDevice(const DeviceCommunicator *communicator,
                            const program::Instruction &instruction,
                            const std::vector<DeviceTensor> &inputs,
                            kernels::Arith arith = kernels::Arith::Native);

/// Puts it into the stream. Slices need no communicator. Results may lie over operands; what NCCL
/// cannot take as it lies goes by way of scratch memory. `isUniform`: then it does so on all ranks
/// of the group alike, which have one memory plan, as registered memory wants it.
Status communicateOnDevice(DeviceCommunicator *communicator,
                           const program::Instruction &instruction,
                           const runtime::GroupPlace &group, const runtime::MemoryLayout &layout,
                           const std::vector<DeviceTensor> &inputs,
                           const std::vector<DeviceTensor> &results, bool isUniform,
                           const Stream &stream, const ScratchFn &scratch,
                           const std::string &place);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDACOLLECTIVES_H

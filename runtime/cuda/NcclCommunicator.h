//===- NcclCommunicator.h - Ranks with GPUs --------------------------------===//
//
// Part of tbc. Plain C++.
//
// Sums of floats are NCCL's: in an order of its own, rounded at every step in their type; the same
// on every rank, and on every run with the same ranks and devices. What NCCL has no reduction for
// (bitwise ones, 16-bit integers, averages of integers, residues) is gathered and reduced on the
// host, in group order. Messages are of tensors in Native arithmetic.
//
// Every pair of ranks and lane has a communicator of its own, and so has every group: messages wait
// for nothing but their receiver. NCCL's environment (NCCL_DEBUG, NCCL_SOCKET_IFNAME, NCCL_IB_HCA,
// ...) is NCCL's to read.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_NCCLCOMMUNICATOR_H
#define TBC_RUNTIME_CUDA_NCCLCOMMUNICATOR_H

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Store.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Nccl.h"

#include <chrono>

namespace tbc::cuda {

struct NcclOptions {
  /// The longest wait for other ranks; HangDetected, naming those that did not come, when it is
  /// over.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Groups that are joined at the start by splitting the communicator of all ranks, which is
  /// cheaper than later one by one: per mesh axis, say, the list of its groups, each rank in at
  /// most one of a list. The same on all ranks.
  std::vector<std::vector<comm::Group>> partitions;
  /// Whether ranks tell each other what they call before each call, so that calls that do not match
  /// are errors that name both. Costs a round trip each; without, such calls hang or worse.
  /// Programs that were verified have none.
  bool checksCalls = false;
};

/// Memory that can be registered (DeviceCommunicator::registerMemory); `nccl`, which can, outlives
/// it. Errors: RankFailed.
Result<DeviceMemory> allocateRegistrable(const Nccl &nccl, const DevicePtr &device, int64_t bytes,
                                         const std::string &what);

/// Connects this rank, which computes on `device`, to all others. Every rank of the job calls it
/// with the same store. `nccl` outlives it. Used by one thread at a time.
///
/// While a rank waits it looks for errors of NCCL, at the clock, and whether the job was given up
/// in the store, and ends its communication where one of them says so; then it gives the job up in
/// the store itself, so that nobody waits for it. After the first error every call returns it.
Result<std::unique_ptr<comm::Communicator>> connectNccl(int64_t rank, int64_t numRanks,
                                                        comm::Store &store, const Nccl &nccl,
                                                        const DevicePtr &device,
                                                        const NcclOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLCOMMUNICATOR_H

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
#include "runtime/comm/Diagnosis.h"
#include "runtime/cuda/HostWatch.h"

#include <chrono>

namespace tbc::cuda {

struct NcclOptions {
  /// The longest wait for other ranks; HangDetected, naming those that did not come, when it is
  /// over. Of `watch`, where that is given.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// The watch of the rank; null: one of the communicator's own.
  std::shared_ptr<HostWatch> watch;
  /// Where this rank stands, and how it asks others; outlive the communicator. Null: its own.
  comm::FlightRecorder *recorder = nullptr;
  comm::Diagnosis *diagnosis = nullptr;
  /// Groups that are joined at the start by splitting the communicator of all ranks, which is
  /// cheaper than later one by one: per mesh axis, say, the list of its groups, each rank in at
  /// most one of a list. The same on all ranks.
  std::vector<std::vector<comm::Group>> partitions;
  /// Messages whose communicators are joined at the start. The same on all ranks.
  std::vector<comm::MessagePair> messages;
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
/// with the same store, which is used by this alone until it ends, or is a comm::SharedStore.
/// `nccl` outlives it. Used by one thread at a time.
///
/// The communicator of all ranks, those of `partitions` and those of `messages` are joined, and
/// each has moved a byte, before this returns. So no later call of theirs waits on the host for
/// another rank: from NCCL 2.22 on the first collective of a communicator does, and the first
/// message of a pair always. Source: NCCL, src/enqueue.cc, ncclPrepareTasks; src/transport.cc.
///
/// After the first error every call returns it (HostWatch::fail). A rank that does not come is
/// found by asking all others where they stand (comm::Diagnosis).
Result<std::unique_ptr<comm::Communicator>> connectNccl(int64_t rank, int64_t numRanks,
                                                        comm::Store &store, const Nccl &nccl,
                                                        const DevicePtr &device,
                                                        const NcclOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLCOMMUNICATOR_H

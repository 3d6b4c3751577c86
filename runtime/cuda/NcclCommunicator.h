//===- NcclCommunicator.h - Ranks with GPUs --------------------------------===//
//
// Part of tbc. Plain C++.
//
// NCCL sums floats in its own order, rounded at every step in their type. The result is the same on
// every rank, and on every run with the same ranks and devices. Reductions that NCCL lacks (bitwise
// ones, 16-bit integers, averages of integers, residues) gather and reduce on the host, in group
// order. Messages are of tensors in Native arithmetic.
//
// Every group, and every pair of ranks and lane, has a separate communicator. So messages wait only
// for their receiver. NCCL reads its own environment (NCCL_DEBUG, NCCL_SOCKET_IFNAME, NCCL_IB_HCA,
// ...).
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
  /// The longest wait for other ranks; then HangDetected, naming the missing ranks. If `watch` is
  /// given, its time-out applies.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// The watch of the rank; null: the communicator makes its own.
  std::shared_ptr<HostWatch> watch;
  /// The standing of this rank, and questions to others; they outlive the communicator. Null: its
  /// own.
  comm::FlightRecorder *recorder = nullptr;
  comm::Diagnosis *diagnosis = nullptr;
  /// Groups joined at the start by splitting the communicator of all ranks, which is cheaper than
  /// joining them later one by one. Each list has disjoint groups, e.g. the groups of one mesh
  /// axis. The same on all ranks.
  std::vector<std::vector<comm::Group>> partitions;
  /// Messages whose communicators are joined at the start. The same on all ranks.
  std::vector<comm::MessagePair> messages;
  /// Whether ranks compare their calls also before each call of a device, so that mismatched calls
  /// give errors that name both. It costs a round trip each. Without it, such calls hang or corrupt
  /// data; verified programs have no such calls. Calls of the host are always compared.
  bool checksCalls = false;
};

/// Allocates memory that can be registered (DeviceCommunicator::registerMemory). `nccl` must
/// support it and outlives it. Errors: RankFailed.
Result<DeviceMemory> allocateRegistrable(const Nccl &nccl, const DevicePtr &device, int64_t bytes,
                                         const std::string &what);

/// Connects this rank, which computes on `device`, to all others. Every rank of the job calls it
/// with the same store. Only the communicator uses the store until it ends, unless it is a
/// comm::SharedStore. `nccl` outlives it. One thread at a time uses it.
///
/// Before it returns, the communicators of all ranks, of `partitions` and of `messages` are joined,
/// and each has moved a byte. So no later call on them waits on the host for another rank.
/// Otherwise the first message of a pair would, and from NCCL 2.22 on also the first collective of
/// a communicator. Source: NCCL, src/enqueue.cc, ncclPrepareTasks; src/transport.cc.
///
/// After the first error every call returns it (HostWatch::fail). Missing ranks are found by asking
/// all others for their standing (comm::Diagnosis).
Result<std::unique_ptr<comm::Communicator>> connectNccl(int64_t rank, int64_t numRanks,
                                                        comm::Store &store, const Nccl &nccl,
                                                        const DevicePtr &device,
                                                        const NcclOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLCOMMUNICATOR_H

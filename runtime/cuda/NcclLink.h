//===- NcclLink.h - One NCCL communicator ----------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_NCCLLINK_H
#define TBC_RUNTIME_CUDA_NCCLLINK_H

#include "runtime/comm/Communicator.h"
#include "runtime/cuda/HostWatch.h"

#include <deque>
#include <functional>

namespace tbc::cuda {

/// A group of ranks, joined by a non-blocking communicator. Joining and calls advance in the
/// background: NCCL answers InProgress until it has enqueued its kernel. For the first call of a
/// communicator, and the first message of a pair, this happens after the other ranks have made
/// their calls. Calls wait for earlier ones.
class NcclLink {
public:
  /// Begins to join; every rank of the group calls it with the same id. `watch` outlives it.
  static Result<std::unique_ptr<NcclLink>> join(const Nccl &nccl, const DevicePtr &device,
                                                HostWatch &watch, const comm::Group &group,
                                                int64_t rank, const NcclId &id);
  /// Returns a link for a part of another link's ranks; `split` joins it.
  static std::unique_ptr<NcclLink> partOf(const NcclLink &whole, const comm::Group &group,
                                          int64_t rank);
  /// Begins to split the ranks of this link; all of them call it, in the same order. Ranks of one
  /// part have the same `color`. With -1 this rank is in no part, and `part` stays without
  /// communicator.
  Status split(NcclLink &part, int color);
  ~NcclLink();

  const comm::Group &group() const { return ranks; }
  /// The other ranks.
  comm::Group others() const;
  int64_t index() const { return self; }
  NcclHandle handle() const { return comm; }
  /// The link's own stream; call `needStream` before.
  const Stream &stream() const { return ownStream; }
  Status needStream();
  /// The number of calls made on it, for errors.
  int64_t numCalls = 0;

  /// A call of NCCL, and the action after NCCL has accepted it.
  struct Call {
    std::string what;
    std::function<NcclCode()> begin;
    std::function<Status()> then; // may be empty
  };
  /// Begins the call now, or after NCCL has accepted the earlier ones. Errors: as for `progress`.
  Status call(Call call);
  /// Advances joining and calls. Errors: those of both, of running communication, and the failure
  /// of the rank.
  Status progress();
  bool isJoined() const { return joined; }
  /// Returns whether it is joined, and NCCL has accepted every call.
  bool isIdle() const { return joined && calls.empty(); }

private:
  NcclLink(const Nccl &nccl, DevicePtr device, HostWatch &watch, comm::Group group, int64_t self)
      : nccl(nccl), device(std::move(device)), watch(watch), ranks(std::move(group)), self(self) {}
  std::string describe() const;

  const Nccl &nccl;
  DevicePtr device;
  HostWatch &watch;
  comm::Group ranks;
  int64_t self;
  NcclHandle comm = nullptr;
  bool joined = false, isUnderWay = false; // the first of `calls`
  std::deque<Call> calls;
  Stream ownStream;
};

/// Returns, for example, "ranks 0, 2, 4".
std::string describeRanks(const comm::Group &group);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLLINK_H

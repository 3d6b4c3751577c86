//===- NcclLink.h - One communicator of NCCL -------------------------------===//
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

/// The ranks of a group, joined by a communicator that does not block. Joining goes on by itself,
/// and so does a call: NCCL answers InProgress until it has put its kernel into the stream, which
/// the first call of a communicator, and the first message of a pair, do when the other ranks have
/// made theirs. Calls wait for those before them.
class NcclLink {
public:
  /// Begins to join; every rank of the group does, with the same id. `watch` outlives it.
  static Result<std::unique_ptr<NcclLink>> join(const Nccl &nccl, const DevicePtr &device,
                                                HostWatch &watch, const comm::Group &group,
                                                int64_t rank, const NcclId &id);
  /// Part of the ranks of another link; `split` joins it.
  static std::unique_ptr<NcclLink> partOf(const NcclLink &whole, const comm::Group &group,
                                          int64_t rank);
  /// Begins to part the ranks of this link; all of them do, in the same order. Ranks of one part
  /// have the same `color`; -1: this rank is in none, and `part` stays without communicator.
  Status split(NcclLink &part, int color);
  ~NcclLink();

  const comm::Group &group() const { return ranks; }
  /// The other ranks.
  comm::Group others() const;
  int64_t index() const { return self; }
  NcclHandle handle() const { return comm; }
  /// Its own; after `needStream`.
  const Stream &stream() const { return ownStream; }
  Status needStream();
  /// How many calls were made on it, for errors.
  int64_t numCalls = 0;

  /// A call of NCCL, and what comes next once NCCL has taken it over.
  struct Call {
    std::string what;
    std::function<NcclCode()> begin;
    std::function<Status()> then; // may be empty
  };
  /// Begins it now, or when those before it have been taken over. Errors: as `progress`.
  Status call(Call call);
  /// Gets on with joining and with calls. Errors: of both, of communication under way, and the
  /// failure of the rank.
  Status progress();
  bool isJoined() const { return joined; }
  /// Whether it is joined, and NCCL has taken over every call.
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

/// "ranks 0, 2, 4".
std::string describeRanks(const comm::Group &group);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLLINK_H

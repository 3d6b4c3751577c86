//===- NcclLink.h - One communicator of NCCL -------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_NCCLLINK_H
#define TBC_RUNTIME_CUDA_NCCLLINK_H

#include "runtime/comm/Communicator.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Nccl.h"

#include <deque>
#include <functional>

namespace tbc::cuda {

/// The ranks of a group, joined by a communicator that does not block, with a stream of its own.
/// Joining goes on by itself; what is called before it has ended is kept until then.
class NcclLink {
public:
  /// Begins to join; every rank of the group does, with the same id.
  static Result<std::unique_ptr<NcclLink>> join(const Nccl &nccl, const DevicePtr &device,
                                                const comm::Group &group, int64_t rank,
                                                const NcclId &id);
  /// Begins to part the ranks of this link; all of them do, in the same order. `group` holds the
  /// caller; null if it is in none of the parts. `color` is the same within a part only.
  Result<std::unique_ptr<NcclLink>> split(const comm::Group &group, int color, int64_t rank) const;
  ~NcclLink();

  const comm::Group &group() const { return ranks; }
  int64_t index() const { return self; }
  NcclHandle handle() const { return comm; }
  const Stream &stream() const { return ownStream; }
  /// How many calls were made on it, for errors.
  int64_t numCalls = 0;

  /// Calls it now, or as soon as the link is joined.
  Status call(std::function<Status()> function);
  /// Gets on with joining. Errors: of joining, of communication under way, of what was kept.
  Status progress();
  bool isJoined() const { return joined; }
  /// Waits (busily: NCCL does too) until what was called last has been taken over.
  Status settle(NcclCode code, const std::string &what) const;
  /// Ends all that is under way.
  void abort();

private:
  NcclLink(const Nccl &nccl, DevicePtr device, comm::Group group, int64_t self)
      : nccl(nccl), device(std::move(device)), ranks(std::move(group)), self(self) {}
  std::string describe() const;

  const Nccl &nccl;
  DevicePtr device;
  comm::Group ranks;
  int64_t self;
  NcclHandle comm = nullptr;
  bool joined = false;
  std::deque<std::function<Status()>> kept;
  Stream ownStream;
};

/// "ranks 0, 2, 4".
std::string describeRanks(const comm::Group &group);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLLINK_H

//===- DeviceCommunicator.h - Collectives on memory of a device ------------===//
//
// Part of tbc. Plain C++. What a communicator between GPUs offers beside the calls of
// comm::Communicator: its calls are put into a stream and work where operands and results lie;
// nobody waits for them but who looks at the stream.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICECOMMUNICATOR_H
#define TBC_RUNTIME_CUDA_DEVICECOMMUNICATOR_H

#include "runtime/comm/Communicator.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Progress.h"

#include <optional>

namespace tbc::cuda {

/// A tensor of a collective.
struct DeviceOperand {
  DeviceAddress from = 0, to = 0;
  /// Elements of the shorter side: of one rank's part of a gather or scatter.
  int64_t count = 0;
  kernels::DType dtype = kernels::DType::F32;
};

/// Bytes to or from an index of a group.
struct DevicePart {
  int64_t index = 0;
  DeviceAddress address = 0;
  int64_t bytes = 0;
};

/// n = group size. All calls return as soon as the call is in the stream: after what is there, and
/// before what comes there next. Ranks of a group make the same calls on it in the same order. A
/// group's first call waits until all its ranks have made theirs. `place` says where in its program
/// the caller is, for errors: RankFailed, what NCCL or the driver refuses; HangDetected, ranks that
/// do not come; and those of the whole job, which then ends.
class DeviceCommunicator {
public:
  virtual ~DeviceCommunicator() = default;

  /// Whether it reduces elements of this type so.
  virtual bool reduces(kernels::DType dtype, comm::ReduceKind kind) const = 0;

  // Several tensors go as one group. `from` and `to` of one are the same or lie apart.

  /// [m] -> [m]; `from` may be `to`.
  virtual Status enqueueAllReduce(const comm::Group &group, comm::ReduceKind kind,
                                  const std::vector<DeviceOperand> &tensors, const Stream &stream,
                                  const std::string &place) = 0;
  /// [m] -> [n*m]; `from` may be the own part of `to`.
  virtual Status enqueueAllGather(const comm::Group &group,
                                  const std::vector<DeviceOperand> &tensors, const Stream &stream,
                                  const std::string &place) = 0;
  /// [n*m] -> [m]: sums; `to` may be the own part of `from`.
  virtual Status enqueueReduceScatter(const comm::Group &group,
                                      const std::vector<DeviceOperand> &tensors,
                                      const Stream &stream, const std::string &place) = 0;
  /// All at once, `what` for errors: "all_to_all". What is sent and what is received lie apart.
  virtual Status enqueueExchange(const comm::Group &group, const std::vector<DevicePart> &sent,
                                 const std::vector<DevicePart> &received, const Stream &stream,
                                 const std::string &what, const std::string &place) = 0;

  /// Buffered: what comes next in the stream waits for a copy, not for the receiver.
  virtual Status enqueueSend(int64_t to, comm::Tag tag, DeviceAddress from, int64_t bytes,
                             const Stream &stream, const std::string &place) = 0;
  virtual Status enqueueRecv(int64_t from, comm::Tag tag, DeviceAddress into, int64_t bytes,
                             const Stream &stream, const std::string &place) = 0;

  // Registered memory, which NCCL reads and writes without copies of its own where the network
  // between the ranks can do that. A call has registered memory on all ranks of its group or on
  // none, at the same distance from where that begins.

  /// Of all later calls of the group; again for the same memory: nothing. All ranks of the group
  /// call it.
  virtual Status registerMemory(const comm::Group &group, DeviceAddress begin, int64_t bytes,
                                const std::string &place) = 0;
  /// No call uses what was registered, and none will.
  virtual void deregisterAll() = 0;

  // For graphs. Whether a collective is part of one has to be so on all of its ranks.

  /// From now on calls become part of a graph and are made when that is launched. They tell the
  /// host of their begin and end. Errors: Usage, of calls that cannot, which are messages and those
  /// of groups that have not met yet.
  virtual Status beginRecording(std::shared_ptr<const Progress> progress) = 0;
  virtual void endRecording() = 0;
  /// The graph of the last recording is on its way, once more; the launch before has ended.
  virtual Status launched() = 0;

  // For who waits for a stream.

  /// Tells other ranks, where they ask, for what this one waits: the call under way, or where there
  /// is none `kernels`.
  virtual void standsAt(const std::string &kernels) = 0;
  /// It waits no more.
  virtual void movesOn() = 0;

  /// Gets on with what is under way. Errors: of any call, and of the job.
  virtual Status checkCalls() = 0;
  /// A call that has been under way for the whole time-out while somebody waited, after which
  /// nothing works any more: which, and the ranks that are not there. Nothing: there is none.
  virtual std::optional<Error> hangingCall() = 0;
  /// Whether a call is under way, with others' part or without.
  virtual bool isAnyUnderWay() const = 0;
  /// How many calls have ended.
  virtual int64_t numEnded() const = 0;
  /// Ends the job with this error; the one that counts, which may be an earlier one.
  virtual Error giveUp(Error error) = 0;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICECOMMUNICATOR_H

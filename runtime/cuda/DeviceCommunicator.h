//===- DeviceCommunicator.h - Collectives on device memory -----------------===//
//
// Part of tbc. Plain C++. The extra calls of a communicator between GPUs, beside
// comm::Communicator. They are enqueued in a stream and work in place on operands and results. Only
// readers of the stream wait for them.
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
  /// Elements of the smaller side: of one rank's part for a gather or scatter.
  int64_t count = 0;
  kernels::DType dtype = kernels::DType::F32;
};

/// Bytes to or from an index of a group.
struct DevicePart {
  int64_t index = 0;
  DeviceAddress address = 0;
  int64_t bytes = 0;
};

/// n = group size. All calls return as soon as the call is enqueued, after the current work of the
/// stream and before later work. Ranks of a group make the same calls on it in the same order. A
/// group's first call waits until all its ranks have made theirs.
///
/// `place` is the caller's position in its program, for errors: RankFailed for refusals of NCCL or
/// the driver; HangDetected for missing ranks; and errors of the whole job, which end it.
class DeviceCommunicator {
public:
  virtual ~DeviceCommunicator() = default;

  /// Returns whether it can reduce elements of this type in this way.
  virtual bool reduces(kernels::DType dtype, comm::ReduceKind kind) const = 0;

  // Several tensors go as one NCCL group. `from` and `to` of one tensor are equal or do not
  // overlap.

  /// [m] -> [m]; `from` may be `to`.
  virtual Status enqueueAllReduce(const comm::Group &group, comm::ReduceKind kind,
                                  const std::vector<DeviceOperand> &tensors, const Stream &stream,
                                  const std::string &place) = 0;
  /// [m] -> [n*m]; `from` may be the own part of `to`.
  virtual Status enqueueAllGather(const comm::Group &group,
                                  const std::vector<DeviceOperand> &tensors, const Stream &stream,
                                  const std::string &place) = 0;
  /// [n*m] -> [m], a sum; `to` may be the own part of `from`.
  virtual Status enqueueReduceScatter(const comm::Group &group,
                                      const std::vector<DeviceOperand> &tensors,
                                      const Stream &stream, const std::string &place) = 0;
  /// Moves all parts at once; `what` is for errors, e.g. "all_to_all". Sent and received parts do
  /// not overlap.
  virtual Status enqueueExchange(const comm::Group &group, const std::vector<DevicePart> &sent,
                                 const std::vector<DevicePart> &received, const Stream &stream,
                                 const std::string &what, const std::string &place) = 0;

  /// Buffered: later work of the stream waits for a copy, not for the receiver.
  virtual Status enqueueSend(int64_t to, comm::Tag tag, DeviceAddress from, int64_t bytes,
                             const Stream &stream, const std::string &place) = 0;
  virtual Status enqueueRecv(int64_t from, comm::Tag tag, DeviceAddress into, int64_t bytes,
                             const Stream &stream, const std::string &place) = 0;

  // Registered memory. NCCL reads and writes it without its own copies if the network between the
  // ranks supports this. A call must use registered memory on all ranks of its group, at the same
  // offset from its beginning, or on no rank.

  /// Registers memory for all later calls of the group; repeated calls have no effect. All ranks of
  /// the group call it.
  virtual Status registerMemory(const comm::Group &group, DeviceAddress begin, int64_t bytes,
                                const std::string &place) = 0;
  /// Requires that no running or later call uses registered memory.
  virtual void deregisterAll() = 0;

  // Graphs. A collective must be part of a graph on all of its ranks or on no rank.

  /// Makes later calls part of a graph; they run when it is launched. They report their begin and
  /// end to the host. Errors: Usage, for calls that cannot be recorded: messages, and calls of
  /// groups that have not met yet.
  virtual Status beginRecording(std::shared_ptr<const Progress> progress) = 0;
  virtual void endRecording() = 0;
  /// Called at each launch of the last recorded graph, after the previous launch has ended.
  virtual Status launched() = 0;

  // For waits on a stream.

  /// Tells asking ranks the reason for this rank's wait: the running call or, without one,
  /// `kernels`.
  virtual void standsAt(const std::string &kernels) = 0;
  /// Ends the wait.
  virtual void movesOn() = 0;

  /// Advances pending calls. Errors: those of any call, and of the job.
  virtual Status checkCalls() = 0;
  /// Returns the error for a call that has been running for the whole time-out during a wait, with
  /// the missing ranks; nullopt if there is no such call. After an error the communicator is
  /// unusable.
  virtual std::optional<Error> hangingCall() = 0;
  /// Returns whether any call is running, even if it waits for other ranks.
  virtual bool isAnyUnderWay() const = 0;
  /// Returns the number of finished calls.
  virtual int64_t numEnded() const = 0;
  /// Ends the job with this error. Returns the job's error, which may be an earlier one.
  virtual Error giveUp(Error error) = 0;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICECOMMUNICATOR_H

//===- SimulatedWorld.h - Ranks as threads of one process ------------------===//
//
// Part of tbc. Plain C++.
//
// A collective blocks until its whole group has called it, and `recv` until the message is there.
// `send` never blocks. Three events end all waits early, on all ranks:
//
// - a rank fails (`fail`, or a call that does not match): RankFailed;
// - every rank waits or has finished, so that no progress is possible: HangDetected, at once;
// - a wait lasts longer than the time-out (e.g., a rank computes forever): HangDetected.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_SIMULATEDWORLD_H
#define TBC_RUNTIME_COMM_SIMULATEDWORLD_H

#include "runtime/comm/Call.h"
#include "runtime/comm/Communicator.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace tbc::comm {

/// The meeting point of the ranks of one process. One thread uses each rank's communicator. Sums
/// are taken in group order, so results are the same in every run.
class SimulatedWorld {
public:
  explicit SimulatedWorld(int64_t numRanks,
                          std::chrono::milliseconds timeout = std::chrono::seconds(60));
  ~SimulatedWorld();
  SimulatedWorld(const SimulatedWorld &) = delete;
  SimulatedWorld &operator=(const SimulatedWorld &) = delete;

  /// Returns the communicator of `rank`, valid as long as the world.
  Communicator &communicator(int64_t rank);

  /// Called by a rank's thread after its last call: a later wait for it cannot succeed.
  void finish(int64_t rank);
  /// Ends the waits of every rank. The first failure is the reported one.
  void fail(int64_t rank, const Error &error);
  /// Returns the first failure, or success.
  Status status() const;

private:
  class Endpoint;
  friend class Endpoint;

  struct Meeting {
    Call call;
    std::vector<kernels::Tensor> inputs; // by group index; without value: not here yet
    std::vector<std::string> places;
    std::vector<bool> here;
    std::vector<kernels::Tensor> results;
    bool isDone = false;
    size_t numTaken = 0;
  };
  using MeetingKey = std::pair<Group, int64_t>; // the group, and the number of earlier calls on it
  struct Message {
    int64_t channel = 0;
    kernels::Tensor tensor;
    std::string place;
  };
  enum class Activity { Running, Waiting, Finished };
  struct RankState {
    Activity activity = Activity::Running;
    std::string place; // of the last call
    std::map<Group, int64_t> numCalls;
    const Meeting *meeting = nullptr; // waited for
    const Group *group = nullptr;
    int64_t from = -1; // the sender of the awaited message
    int lane = 0;      // its lane
  };

  Result<kernels::Tensor> meet(int64_t rank, const Group &group, const Call &call,
                               const kernels::Tensor &input, const std::string &place);
  Result<kernels::Tensor> receive(int64_t rank, int64_t from, Tag tag,
                                  const kernels::TensorType &type, const std::string &place);
  void deliver(int64_t rank, int64_t to, Tag tag, const kernels::Tensor &input,
               const std::string &place);

  // All of these need the mutex.
  std::string whyMismatch(const Meeting &meeting, const Group &group, const Call &call,
                          const kernels::Tensor &input) const;
  void complete(Meeting &meeting, const Group &group);
  template <typename ReadyFn>
  Status waitUntil(std::unique_lock<std::mutex> &lock, int64_t rank, ReadyFn isReady);
  void setFailure(Error error);
  bool isStuck() const;
  std::string describeWaits() const;
  std::string describeRank(int64_t rank) const;
  Error stopped(int64_t rank) const;

  const std::chrono::milliseconds timeout;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<RankState> ranks;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::map<MeetingKey, Meeting> meetings;
  std::map<std::tuple<int64_t, int64_t, int>, std::deque<Message>> mailboxes; // (from, to, lane)
  bool hasFailed = false;
  Error failure;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_SIMULATEDWORLD_H

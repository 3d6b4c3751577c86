//===- SimulatedWorld.h - Ranks as threads of one process ------------------===//
//
// Part of tbc. Plain C++.
//
// Who blocks: a collective until its whole group has called it, `recv` until the message is there;
// `send` never. What ends a wait early, for all ranks at once:
//  - a rank fails (fail, or a call that does not match): RankFailed;
//  - every rank waits or has finished, so that nothing can happen any more: HangDetected, at once;
//  - a wait lasts longer than the time-out (a rank computes forever): HangDetected.
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

/// Where the ranks of one process meet. Each rank's communicator is used by one thread; sums are
/// taken in group order, so results are the same on every run.
class SimulatedWorld {
public:
  explicit SimulatedWorld(int64_t numRanks,
                          std::chrono::milliseconds timeout = std::chrono::seconds(60));
  ~SimulatedWorld();
  SimulatedWorld(const SimulatedWorld &) = delete;
  SimulatedWorld &operator=(const SimulatedWorld &) = delete;

  /// The communicator of `rank`, which lives as long as the world.
  Communicator &communicator(int64_t rank);

  /// To be called by a rank's thread when it has no more to do: nobody can wait for it from now on.
  void finish(int64_t rank);
  /// Ends the wait of every rank. The first failure is the one that is reported.
  void fail(int64_t rank, const Error &error);
  /// The first failure, or success.
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
  using MeetingKey = std::pair<Group, int64_t>; // group, how many calls on it came before
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
    int64_t from = -1; // whose message is waited for
    int lane = 0;      // in which lane
  };

  Result<kernels::Tensor> meet(int64_t rank, const Group &group, const Call &call,
                               const kernels::Tensor &input, const std::string &place);
  Result<kernels::Tensor> receive(int64_t rank, int64_t from, Tag tag,
                                  const kernels::TensorType &type, const std::string &place);
  void deliver(int64_t rank, int64_t to, Tag tag, const kernels::Tensor &input,
               const std::string &place);

  // All of these with the mutex held.
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

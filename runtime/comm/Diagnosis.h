//===- Diagnosis.h - Which rank the others wait for --------------------------===//
//
// Part of tbc. Plain C++. When a rank waits too long, or loses a connection, it asks the others
// through the job's store where they stand, follows who waits for whom, and names the rank at the
// end. All ranks then report the first such finding, so that none accuses another that itself
// waits.
//
// Keys of the store: "trouble", set once by whoever has some; "standing/N", what rank N answers;
// "finding", the first one that was made.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_DIAGNOSIS_H
#define TBC_RUNTIME_COMM_DIAGNOSIS_H

#include "runtime/comm/FlightRecorder.h"
#include "runtime/comm/Store.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <thread>

namespace tbc::comm {

/// What ranks said of themselves; a rank that is asked and does not answer has nothing.
using Standings = std::map<int64_t, std::optional<Standing>>;

/// Who is at the end of what `self` waits for.
struct Culprits {
  /// Gave no answer: stopped, gone, or cut off.
  std::vector<int64_t> silent;
  /// Answered, and wait for nobody: they compute, or are blocked by something else.
  std::vector<int64_t> busy;
  /// Wait for each other, where nobody is at an end.
  std::vector<int64_t> cycle;
  /// From the first rank that `self` waits for to the first culprit, if that is another.
  std::vector<int64_t> path;
};

/// Follows the wait-for graph from `self`, asking each rank that is reached once. `ask(rank)`:
/// where it stands, or nothing. Example: 0 waits for 1, 1 waits for 2, and 2 does not answer:
/// silent {2}, path {1, 2}.
Culprits findCulprits(int64_t self, const std::vector<int64_t> &waitsFor,
                      const std::function<std::optional<Standing>(int64_t rank)> &ask,
                      Standings &answers);

/// Of a rank, for its communicator. From `start` on it answers others by a thread of its own;
/// before, every error stays what it is.
class Diagnosis {
public:
  /// `store` and `recorder` outlive this; nobody else uses the store meanwhile, unless it is a
  /// SharedStore. `servingRank`: the rank that serves it, -1 if none does. `say`: told a table of
  /// all standings, of the rank whose finding counts; may be empty.
  Diagnosis(int64_t rank, int64_t numRanks, int64_t servingRank, Store &store,
            FlightRecorder &recorder, std::chrono::milliseconds timeout,
            std::function<void(const std::string &)> say);
  /// Where this rank serves the store, waits until the others have had time to read its finding.
  ~Diagnosis();
  void start();
  Diagnosis(const Diagnosis &) = delete;
  Diagnosis &operator=(const Diagnosis &) = delete;

  /// The error to report in place of "no answer from these ranks within the timeout" at `place`.
  /// `waited`: another time-out than that of most calls.
  Error timedOut(const std::string &place, const std::vector<int64_t> &missing,
                 std::optional<std::chrono::milliseconds> waited = std::nullopt);
  /// The same, in place of "the connection to this rank is gone". `tellsFirst`: whether a rank that
  /// gives up has told its finding before its connection breaks.
  Error lost(const std::string &place, int64_t peer, bool tellsFirst);
  /// The same of any other error of this rank, which the others are to learn.
  Error failed(const Error &error);
  /// The same of an error that does not say which of `ranks` failed: names those that give no sign
  /// of life, if there are some.
  Error failedAmong(const Error &error, const std::vector<int64_t> &ranks);

private:
  Result<std::string> claim(const std::string &key, const std::string &value);
  Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout);
  void answer();
  void answerNow();
  std::string finding(const Culprits &culprits, const Standings &answers,
                      std::chrono::milliseconds waited) const;
  std::optional<Standing> ask(int64_t other, std::chrono::steady_clock::time_point deadline,
                              bool &hasStore);
  std::optional<Error> heardEnd(const std::string &place);
  Error conclude(const std::string &place, const Error &own, const std::string &found,
                 const Standings &answers);
  Error heard(const std::string &place, const std::string &first) const;
  std::string table(const Standings &answers) const;

  const int64_t rank, numRanks, servingRank;
  FlightRecorder &recorder;
  const std::chrono::milliseconds timeout, grace;
  const std::function<void(const std::string &)> say;
  std::mutex storeMutex;
  Store &store;
  std::mutex mutex;
  std::condition_variable changed;
  bool isClosing = false, hasAnswered = false, isStarted = false, hasFound = false;
  std::thread thread;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_DIAGNOSIS_H

//===- Diagnosis.h - Finds the rank that the others wait for -----------------===//
//
// Part of tbc. Plain C++. A rank that waits too long, or loses a connection, asks the others
// through the job's store for their standing. It follows the wait-for graph and names the ranks at
// its end. All ranks then report the first such finding, so that a rank that itself waits is not
// accused.
//
// Keys of the store: "trouble", set once by the first rank in trouble; "standing/N", the answer of
// rank N; "finding", the first finding.
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

/// The answers of ranks about themselves; nullopt for a rank that does not answer.
using Standings = std::map<int64_t, std::optional<Standing>>;

/// The ranks at the end of the wait-for graph from `self`.
struct Culprits {
  /// No answer: stopped, gone, or cut off.
  std::vector<int64_t> silent;
  /// Answered and wait for no rank: they compute, or are blocked by something else.
  std::vector<int64_t> busy;
  /// Wait for each other, if there is no end.
  std::vector<int64_t> cycle;
  /// From the first rank that `self` waits for to the first culprit, if they differ.
  std::vector<int64_t> path;
};

/// Follows the wait-for graph from `self`. `ask(rank)` returns the standing of a rank or nullopt;
/// it is called once per reached rank. Example: 0 waits for 1, 1 waits for 2, and 2 does not
/// answer: silent {2}, path {1, 2}.
Culprits findCulprits(int64_t self, const std::vector<int64_t> &waitsFor,
                      const std::function<std::optional<Standing>(int64_t rank)> &ask,
                      Standings &answers);

/// The diagnosis of one rank, for its communicator. From `start` on, a separate thread answers
/// other ranks. Before it, errors are reported unchanged.
class Diagnosis {
public:
  /// `store` and `recorder` outlive this. The store must not be used elsewhere meanwhile, unless it
  /// is a SharedStore. `servingRank`: the rank that serves the store, or -1. `say`, which may be
  /// empty, receives a table of all standings on the rank with the first finding.
  Diagnosis(int64_t rank, int64_t numRanks, int64_t servingRank, Store &store,
            FlightRecorder &recorder, std::chrono::milliseconds timeout,
            std::function<void(const std::string &)> say);
  /// If this rank serves the store, waits until the others have had time to read its finding.
  ~Diagnosis();
  void start();
  Diagnosis(const Diagnosis &) = delete;
  Diagnosis &operator=(const Diagnosis &) = delete;

  /// Returns the error to report instead of "no answer from these ranks within the timeout" at
  /// `place`. `waited`: the time-out, if it is not the usual one.
  Error timedOut(const std::string &place, const std::vector<int64_t> &missing,
                 std::optional<std::chrono::milliseconds> waited = std::nullopt);
  /// Returns the error to report instead of "the connection to this rank is gone". `tellsFirst`:
  /// whether a failing rank publishes its finding before its connection breaks.
  Error lost(const std::string &place, int64_t peer, bool tellsFirst);
  /// Returns the error to report for any other error of this rank, and publishes it.
  Error failed(const Error &error);
  /// Returns the error to report for an error of unknown origin among `ranks`. It names those
  /// without a sign of life, if there are any.
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

//===- Gloo.h - Ranks as processes that talk over TCP ----------------------===//
//
// Part of tbc. Plain C++; Gloo's own headers stay in this library's sources.
//
// Between ranks of one host the bytes of collectives go through shared memory (LocalLinks.h), and a
// long all_reduce over several hosts goes host by host where that spares bytes (HostCourse.h).
//
// Gloo gives the mesh of connections and messages on them. The collectives are made of those here:
// Gloo's own have neither groups, nor all_to_all of all types, nor a fixed order of sums, and an
// uneven call of theirs ends the process. Each message is preceded by a header that says what its
// sender calls, so that calls that do not match are errors that name both sides.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_GLOO_H
#define TBC_RUNTIME_COMM_GLOO_H

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Diagnosis.h"
#include "runtime/comm/Store.h"

#include <chrono>
#include <functional>
#include <string>

namespace tbc::comm {

/// When a long all_reduce over several hosts goes host by host; the bits are the same either way.
enum class ByHost { WhereItPays, Always, Never };

struct GlooOptions {
  /// The address (numeric or a name) that this rank listens on and is reached at.
  std::string host = "127.0.0.1";
  /// The longest wait for another rank; HangDetected, naming it, when it is over.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Whether ranks of one host exchange the bytes of collectives through memory that they share,
  /// where all of them can. Which are of one host, `hostKey` tells, if it is not empty, and else
  /// the kernel.
  bool sharesMemory = true;
  std::string hostKey;
  /// The same for all ranks.
  ByHost byHost = ByHost::WhereItPays;
  /// Told why this rank and the others of its host use sockets although they were to share memory.
  std::function<void(const std::string &why)> warn;
  /// Told of every call, and asked what a failure means; outlive the communicator. May be null.
  FlightRecorder *recorder = nullptr;
  Diagnosis *diagnosis = nullptr;
  /// What ranks prove to each other that they know before anything else is said.
  std::string token;
};

/// Connects this rank to all others. Every rank of the job calls it with the same store. The
/// communicator is used by one thread at a time, and gives the same bits as SimulatedWorld: sums
/// are taken in group order and rounded once. Its destructor waits until what was sent is on its
/// way.
///
/// A rank that has died shows as RankFailed at once, one that hangs as HangDetected; with a
/// diagnosis, all ranks name the same one. After the first error every call returns it again.
/// Errors of connecting: a rank that does not come, or does not know the token.
Result<std::unique_ptr<Communicator>> connectGloo(int64_t rank, int64_t numRanks, Store &store,
                                                  const GlooOptions &options);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_GLOO_H

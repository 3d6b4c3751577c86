//===- Gloo.h - Ranks as processes that talk over TCP ----------------------===//
//
// Part of tbc. Plain C++. Gloo's own headers stay in this library's sources.
//
// Ranks of one host exchange the bytes of collectives through shared memory (LocalLinks.h). A long
// all_reduce over several hosts is hierarchical if this saves bytes (HostCourse.h).
//
// Gloo provides the mesh of connections and messages on them. Collectives are implemented here,
// because Gloo's lack groups, an all_to_all of all types, and a fixed order of sums. Gloo's also
// end the process if sizes differ between ranks. Each message follows a header with its sender's
// call, so mismatched calls give errors that name both sides.
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

/// When to use the hierarchical all_reduce; the bits are the same either way.
enum class ByHost { WhereItPays, Always, Never };

struct GlooOptions {
  /// The address (numeric or a name) at which this rank listens and is reached.
  std::string host = "127.0.0.1";
  /// The longest wait for another rank; then HangDetected, naming the rank.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Whether ranks of one host exchange the bytes of collectives through shared memory, if all of
  /// them can. `hostKey` identifies the host; if it is empty, the kernel's boot id does.
  bool sharesMemory = true;
  std::string hostKey;
  /// Must be equal on all ranks.
  ByHost byHost = ByHost::WhereItPays;
  /// Receives the reason if this rank's host falls back from shared memory to sockets.
  std::function<void(const std::string &why)> warn;
  /// Record every call and explain failures. They outlive the communicator and may be null.
  FlightRecorder *recorder = nullptr;
  Diagnosis *diagnosis = nullptr;
  /// The secret that ranks prove to each other before any other exchange.
  std::string token;
};

/// Connects this rank to all others. Every rank of the job calls it with the same store. One thread
/// at a time uses the communicator. Its results have the same bits as SimulatedWorld: sums are
/// taken in group order and rounded once. Its destructor waits until all messages have left.
///
/// A dead rank shows as RankFailed at once, a hanging one as HangDetected. With a diagnosis, all
/// ranks name the same rank. After the first error every call returns it again. Errors of
/// connecting: a rank is missing, or does not know the token.
Result<std::unique_ptr<Communicator>> connectGloo(int64_t rank, int64_t numRanks, Store &store,
                                                  const GlooOptions &options);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_GLOO_H

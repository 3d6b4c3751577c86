//===- Rendezvous.h - All ranks of a job find and check each other ---------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_RENDEZVOUS_H
#define TBC_RUNTIME_LAUNCH_RENDEZVOUS_H

#include "runtime/launch/Environment.h"
#include "runtime/launch/Stores.h"

#include <functional>
#include <utility>
#include <vector>

namespace tbc::launch {

/// The configuration fingerprint: values that must be equal on every rank, with names for messages.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Performs the handshake of a job: waits until every rank is here and all facts agree. Ranks may
/// omit facts of `factsOfSome`; the ranks that have them must agree. `waitsFor` is told of each
/// rank before this one waits for it. Errors, on every rank: Usage, if a rank appears twice or
/// ranks disagree on a fact (both values are named); HangDetected, if a rank does not come within
/// `timeout`; StoppedOnRequest, if a rank is to stop while it waits (`stopRequested`).
Status checkIn(comm::Store &store, int64_t rank, int64_t numRanks, const Facts &facts,
               Timeout timeout, const Facts &factsOfSome = {},
               const std::function<void(int64_t rank)> &waitsFor = {});

/// The store of a job, and its server if this process runs it.
struct JobStore {
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<comm::Store> store;
};

/// Opens the store at `point`. Rank 0 serves it if it is on TCP.
Result<JobStore> openJobStore(const MeetingPoint &point, int64_t rank, const std::string &token,
                              Timeout timeout);

/// Returns the address of this host for others that meet at `point`: loopback if `point` is
/// loopback, else the local address of the route to it.
Result<std::string> ownAddress(const MeetingPoint &point);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_RENDEZVOUS_H

//===- Rendezvous.h - All ranks of a job find and check each other ---------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_RENDEZVOUS_H
#define TBC_RUNTIME_LAUNCH_RENDEZVOUS_H

#include "runtime/launch/Environment.h"
#include "runtime/launch/Stores.h"

#include <utility>
#include <vector>

namespace tbc::launch {

/// What must be the same on every rank: a name for messages and the value.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Waits until every rank is here and all agree; on `factsOfSome` those ranks that have one of the
/// name. Errors, on every rank: a rank is here twice, ranks disagree on a fact (both values are
/// named; Usage), a rank does not come within `timeout` (HangDetected).
Status checkIn(comm::Store &store, int64_t rank, int64_t numRanks, const Facts &facts,
               Timeout timeout, const Facts &factsOfSome = {});

/// The store of a job, and its server where this process is the one to run it.
struct JobStore {
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<comm::Store> store;
};

/// Opens the store at `point`; rank 0 serves it if it is on TCP.
Result<JobStore> openJobStore(const MeetingPoint &point, int64_t rank, const std::string &token,
                              Timeout timeout);

/// The address under which this host is reached by others that meet at `point`: loopback if that
/// is, else the one that the system takes on the way there.
Result<std::string> ownAddress(const MeetingPoint &point);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_RENDEZVOUS_H

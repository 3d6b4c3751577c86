//===- SharedStatus.h - Agreement on success of all ranks --------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_SHAREDSTATUS_H
#define TBC_RUNTIME_COMM_SHAREDSTATUS_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

/// Shares the status of all ranks. Every rank gets success if all succeeded. Otherwise every rank
/// gets the error of the lowest failed rank, with its code; other ranks see it with the prefix
/// "rank N: ". All ranks call it. Errors of the communicator name `place` and come back unchanged.
Status shareStatus(Communicator &communicator, const Status &mine, const std::string &place);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_SHAREDSTATUS_H

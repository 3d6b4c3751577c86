//===- SharedStatus.h - Whether all ranks succeeded --------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_SHAREDSTATUS_H
#define TBC_RUNTIME_COMM_SHAREDSTATUS_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

/// Every rank says whether it succeeded, and all learn the same: success if all of them did, else
/// the error of the lowest rank that did not, with its code, on the other ranks behind "rank N: ".
/// All ranks call it; `place` is for errors of the communicator, which come back as they are.
Status shareStatus(Communicator &communicator, const Status &mine, const std::string &place);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_SHAREDSTATUS_H

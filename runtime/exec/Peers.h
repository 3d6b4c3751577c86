//===- Peers.h - The groups and messages of a Program ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_PEERS_H
#define TBC_RUNTIME_EXEC_PEERS_H

#include "runtime/abi/Program.h"
#include "runtime/comm/Communicator.h"

namespace tbc::runtime {

/// The communication groups and messages of a Program, the same on all ranks.
struct Peers {
  /// Groups of several ranks. The groups of one list are disjoint.
  std::vector<std::vector<comm::Group>> partitions;
  /// In ascending order.
  std::vector<comm::MessagePair> messages;
};

/// Collects the peers of all ranks. Example: dp = 2 and pp = 2 on ranks 0 to 3, gradients summed
/// over dp: partitions {{{0, 1}, {2, 3}}} if dp is the inner axis, messages {0 -> 2, 1 -> 3, 2 ->
/// 0, 3 -> 1} in lane 0.
Peers peersOf(const program::Program &program);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_PEERS_H

//===- Collectives.h - A Program's communication over a Communicator -------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_COLLECTIVES_H
#define TBC_RUNTIME_EXEC_COLLECTIVES_H

#include "runtime/abi/Program.h"
#include "runtime/comm/Communicator.h"

namespace tbc::runtime {

/// A group of ranks, and this rank's index in it.
struct GroupPlace {
  comm::Group ranks;
  int64_t index = 0;
};

/// Returns the group of a collective instruction; for a send or recv, the peer's rank alone.
GroupPlace groupPlace(const program::Program &program, const program::Instruction &instruction,
                      const std::vector<int64_t> &coordinates);

/// Executes a collective, slice, send or recv. It packs `inputs` (empty for a recv), exchanges once
/// and unpacks into `resultTypes`. Errors name `place`.
Result<std::vector<kernels::Tensor>>
communicate(comm::Communicator &communicator, const program::Instruction &instruction,
            const GroupPlace &group, const std::vector<kernels::Tensor> &inputs,
            const std::vector<kernels::TensorType> &resultTypes, const std::string &place);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_COLLECTIVES_H

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

/// A rank among its group.
struct GroupPlace {
  comm::Group ranks;
  int64_t index = 0;
};

/// The group of a collective instruction, or of a send or recv the peer's rank alone.
GroupPlace groupPlace(const program::Program &program, const program::Instruction &instruction,
                      const std::vector<int64_t> &coordinates);

/// Executes a collective, slice, send or recv: packs `inputs` (none for a recv), exchanges once,
/// unpacks into `resultTypes`. `place` is for errors.
Result<std::vector<kernels::Tensor>>
communicate(comm::Communicator &communicator, const program::Instruction &instruction,
            const GroupPlace &group, const std::vector<kernels::Tensor> &inputs,
            const std::vector<kernels::TensorType> &resultTypes, const std::string &place);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_COLLECTIVES_H

//===- LossSlice.h - The part of an update that completes the loss ----------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_LOSSSLICE_H
#define TBC_RUNTIME_EXEC_LOSSSLICE_H

#include "runtime/abi/Program.h"

namespace tbc::runtime {

/// Returns, by instruction of the stage's update block, whether it is needed to complete the loss
/// of a step over the ranks. Two kinds are needed: instructions that feed results to slots of role
/// Loss, and communication between stages with its inputs, so that all stages make the same calls.
/// A region is taken whole or not at all, so some instructions may also compute results for other
/// slots.
std::vector<bool> lossSlice(const program::Program &program, int stage);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_LOSSSLICE_H

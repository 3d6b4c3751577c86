//===- LossSlice.h - What of an update completes the loss -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_LOSSSLICE_H
#define TBC_RUNTIME_EXEC_LOSSSLICE_H

#include "runtime/abi/Program.h"

namespace tbc::runtime {

/// Which instructions of the stage's update block complete the loss of a step over its ranks: those
/// that its results to slots of role Loss need, and those that communicate between stages, with
/// what these need, so that all stages make the same calls. A region is in it whole or not at all,
/// so that there may be instructions in it that compute results for other slots too.
std::vector<bool> lossSlice(const program::Program &program, int stage);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_LOSSSLICE_H

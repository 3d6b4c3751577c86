//===- Agreement.h - The exchange of ranks after a step -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_AGREEMENT_H
#define TBC_RUNTIME_TRAIN_AGREEMENT_H

#include "runtime/comm/Communicator.h"

namespace tbc::train {

/// The state of a rank after a step, or the combined state of all ranks.
struct Verdict {
  bool stops = false;        // whether any rank stops
  bool isWritten = true;     // whether all ranks have written the pending checkpoint
  kernels::Tensor loss;      // a scalar; without value if no rank has it
  int64_t residentBytes = 0; // the largest of all ranks
  bool overflows = false;    // whether a gradient of any rank overflows, so the step is skipped
  int64_t brokenTensor = -1; // StartValues::tensor; the largest of all ranks
};

/// Combines the verdicts of all ranks: the loss of a step and whether to go on. Errors:
/// VerificationFailed, if ranks have different losses; those of the communicator.
Result<Verdict> agree(comm::Communicator &communicator, const Verdict &mine, kernels::Arith arith);

comm::Group everyoneOf(const comm::Communicator &communicator);

/// The resident bytes of this process now; 0 if the system does not report it.
int64_t residentBytes();

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_AGREEMENT_H

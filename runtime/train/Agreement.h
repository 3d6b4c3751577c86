//===- Agreement.h - What ranks tell each other after a step ----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_AGREEMENT_H
#define TBC_RUNTIME_TRAIN_AGREEMENT_H

#include "runtime/comm/Communicator.h"

namespace tbc::train {

/// What a rank has to say, and what is so for all of them.
struct Verdict {
  bool stops = false;        // on any rank
  bool isWritten = true;     // on all: what a checkpoint under way waits for
  kernels::Tensor loss;      // a scalar; without value where no rank has it
  int64_t residentBytes = 0; // of the rank that has most
};

/// All ranks agree on the loss of a step and on whether to go on. Errors: VerificationFailed, where
/// ranks have different losses; the communicator's.
Result<Verdict> agree(comm::Communicator &communicator, const Verdict &mine, kernels::Arith arith);

comm::Group everyoneOf(const comm::Communicator &communicator);

/// What this process takes of the machine's memory now; 0 where the system does not say.
int64_t residentBytes();

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_AGREEMENT_H

//===- ReduceRuns.h - The arithmetic of collectives on bytes ---------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_REDUCERUNS_H
#define TBC_RUNTIME_COMM_REDUCERUNS_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

/// output[i] = the reduction of element i of all inputs, at least one, with the same bits as
/// `reduce`. Each input holds `count` elements. The output may be one of the inputs.
void reduceElements(const Reduction &reduction, const ElementType &type,
                    const std::vector<const unsigned char *> &inputs, unsigned char *output,
                    int64_t count);

// A reduction in steps: inputs come in turns, with an unrounded state per element between them.
// Begin, continue and end in the order of the inputs give the same bits as `reduceElements`.

/// Returns the bytes of the state of one element: 8, or 1 for a residue modulo 251.
int64_t stateWidth(const ElementType &type);

/// states[i] = the fold of element i of `before`, if given, and of all inputs with `count` elements
/// each. `states` may be `before`.
void foldElements(const Reduction &reduction, const ElementType &type, const unsigned char *before,
                  const std::vector<const unsigned char *> &inputs, unsigned char *states,
                  int64_t count);

/// output = the results of states of `numTerms` terms each. KernelError: as for `reduce`.
void endFolds(const Reduction &reduction, const ElementType &type, const unsigned char *states,
              int64_t numTerms, unsigned char *output, int64_t count);

/// Rounds f32 to bf16, to nearest with ties to even, and converts back. Example: 1.00390625 (1 +
/// 2^-8) becomes 1.
void narrowToBF16(const unsigned char *from, unsigned char *into, int64_t count);
void widenFromBF16(const unsigned char *from, unsigned char *into, int64_t count);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_REDUCERUNS_H

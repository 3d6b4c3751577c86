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
/// `reduce`; each holds `count` elements. The output may be one of the inputs.
void reduceElements(const Reduction &reduction, const ElementType &type,
                    const std::vector<const unsigned char *> &inputs, unsigned char *output,
                    int64_t count);

// A reduction in parts: inputs come in turns, and between them stands a state per element, which
// has the digits that no rounding has touched. Whoever begins, goes on and ends in the order of the
// inputs has the same bits as `reduceElements`.

/// Bytes of the state of one element: 8, or those of a residue modulo 251.
int64_t stateWidth(const ElementType &type);

/// states[i] = what element i of `before`, if given, becomes with that of all inputs, which hold
/// `count` elements each. `states` may be `before`.
void foldElements(const Reduction &reduction, const ElementType &type, const unsigned char *before,
                  const std::vector<const unsigned char *> &inputs, unsigned char *states,
                  int64_t count);

/// The results of states of `numTerms` terms each. KernelError: as of `reduce`.
void endFolds(const Reduction &reduction, const ElementType &type, const unsigned char *states,
              int64_t numTerms, unsigned char *output, int64_t count);

/// f32 rounded to bf16, to nearest with halves to even, and back.
void narrowToBF16(const unsigned char *from, unsigned char *into, int64_t count);
void widenFromBF16(const unsigned char *from, unsigned char *into, int64_t count);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_REDUCERUNS_H

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

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_REDUCERUNS_H

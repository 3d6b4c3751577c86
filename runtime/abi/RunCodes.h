//===- RunCodes.h - Exit codes of runs only -------------------------------===//
//
// Part of tbc. Plain C++. They extend the codes of Status.h, under the same documented interface.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_RUNCODES_H
#define TBC_RUNTIME_ABI_RUNCODES_H

#include "runtime/abi/Status.h"

namespace tbc {

/// The loss of a training step is NaN or infinite, or a value of a checkpoint would be.
inline constexpr ErrorCode notFiniteCode = ErrorCode(11);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_RUNCODES_H

//===- RunCodes.h - Exit codes that only runs have ---------------------------===//
//
// Part of tbc. Plain C++. Beside those of Status.h, and of the same documented interface.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_RUNCODES_H
#define TBC_RUNTIME_ABI_RUNCODES_H

#include "runtime/abi/Status.h"

namespace tbc {

/// The loss of a training step, or what a checkpoint would hold, is NaN or infinite.
inline constexpr ErrorCode notFiniteCode = ErrorCode(11);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_RUNCODES_H

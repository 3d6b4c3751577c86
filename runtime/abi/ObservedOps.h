//===- ObservedOps.h - Ops whose results a run looks at ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_OBSERVEDOPS_H
#define TBC_RUNTIME_ABI_OBSERVEDOPS_H

#include <string_view>

namespace tbc::program {

/// The id of the instruction of the update that computes the norm of all gradients. It is in no
/// region: what only a region reads is nowhere to be seen.
inline constexpr std::string_view gradientNormId = "gradient_norm";

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_OBSERVEDOPS_H

//===- ObservedOps.h - Ops with results that a run reports ----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_OBSERVEDOPS_H
#define TBC_RUNTIME_ABI_OBSERVEDOPS_H

#include <string_view>

namespace tbc::program {

/// The id of the update's instruction that computes the norm of all gradients. It is never in a
/// region, because a value inside a region cannot be read from outside.
inline constexpr std::string_view gradientNormId = "gradient_norm";

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_OBSERVEDOPS_H

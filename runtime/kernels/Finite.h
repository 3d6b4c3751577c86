//===- Finite.h - Whether all elements are numbers ---------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_FINITE_H
#define TBC_RUNTIME_KERNELS_FINITE_H

#include "runtime/kernels/Tensor.h"

namespace tbc::kernels {

/// Whether a tensor of floats has no NaN and no infinity. Of integers, of residues and of a tensor
/// without value: true.
bool isFinite(const Tensor &tensor);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_FINITE_H

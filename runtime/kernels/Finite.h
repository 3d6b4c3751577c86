//===- Finite.h - Whether all elements are finite -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_FINITE_H
#define TBC_RUNTIME_KERNELS_FINITE_H

#include "runtime/kernels/Tensor.h"

namespace tbc::kernels {

/// Whether a float tensor has no NaN and no infinity. True for integers, residues and a tensor
/// without value.
bool isFinite(const Tensor &tensor);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_FINITE_H

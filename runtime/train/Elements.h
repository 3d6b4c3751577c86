//===- Elements.h - One element of a file, as a number ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_ELEMENTS_H
#define TBC_RUNTIME_TRAIN_ELEMENTS_H

#include "runtime/kernels/Tensor.h"

namespace tbc::train {

/// The little-endian element of type `dtype` at `bytes`, which may be misaligned. 64-bit integers
/// beyond 2^53 are rounded. Example: the bytes 80 3f as BF16 are 1.
double elementAt(kernels::DType dtype, const unsigned char *bytes);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_ELEMENTS_H

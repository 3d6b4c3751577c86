//===- Movement.h - Kernels that move elements -----------------------------===//
//
// Part of tbc.
//
//   broadcast{dims}             input dim i becomes output dim dims[i] with its size; other output
//                               dims are new and repeat the input.
//   transpose{permutation}      output dim i is input dim permutation[i].
//   reshape{sizes, in, out}     the elements in row-major order in the result's shape.
//   slice{dim, offset, size}    indices offset .. offset + size - 1 of dim.
//   concat{dim}                 the operands one after another along dim.
//   pad{dim, low, high}         that many zeros before and after, along dim.
//   iota{dim}                   each element's index along dim.
//   constant{value}             vector<double> or vector<int64_t>; one element is repeated.
//   factor_size{count,samples}  the integer count * samples as a float scalar.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_MOVEMENT_H
#define TBC_RUNTIME_KERNELS_MOVEMENT_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &movementKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_MOVEMENT_H

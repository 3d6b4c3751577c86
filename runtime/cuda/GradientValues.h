//===- GradientValues.h - The gradients among a stage's values -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_GRADIENTVALUES_H
#define TBC_RUNTIME_CUDA_GRADIENTVALUES_H

#include "runtime/abi/Program.h"

#include <vector>

namespace tbc::cuda {

/// Returns, for each value of the stage, whether it is a gradient or computed from one. In blocks
/// other than forward these are: results of backward ops, values sent by a later stage, values
/// computed from them, and those kept from an earlier block. Recomputed forward values are not
/// gradients.
std::vector<bool> gradientsOf(const program::Stage &stage);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_GRADIENTVALUES_H

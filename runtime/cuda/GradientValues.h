//===- GradientValues.h - Which values of a stage are gradients ------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_GRADIENTVALUES_H
#define TBC_RUNTIME_CUDA_GRADIENTVALUES_H

#include "runtime/abi/Program.h"

#include <vector>

namespace tbc::cuda {

/// Of each value of the stage whether it is a gradient, or what was computed from one: in a block
/// other than forward what a backward op makes, what a later stage sends, what is computed from
/// such, and what an earlier block kept of it. What is computed again for backward is none.
std::vector<bool> gradientsOf(const program::Stage &stage);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_GRADIENTVALUES_H

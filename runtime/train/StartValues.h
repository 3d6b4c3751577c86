//===- StartValues.h - Tensors that begin with NaN or infinity -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_STARTVALUES_H
#define TBC_RUNTIME_TRAIN_STARTVALUES_H

#include "runtime/abi/Program.h"

#include <atomic>
#include <string>

namespace tbc::train {

/// Remembers a tensor of this rank whose initial value is not finite, so that the end of a run can
/// name it.
class StartValues {
public:
  /// Looks at a piece of the initial value of `tensor`. A state counts only with NaN, since masks
  /// are infinite. Several threads may call it.
  void look(const program::Program &program, const program::GlobalTensor &tensor,
            const kernels::Tensor &piece);

  /// The number of such a tensor; -1 without one.
  int64_t tensor() const { return found; }

private:
  std::atomic<int64_t> found{-1};
};

/// Returns where a loss that is not finite began before the first step, or "": in `tensor`, a
/// number of StartValues, or in a constant of the Program that is NaN or plus infinity.
std::string startOfNan(const program::Program &program, int64_t tensor);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_STARTVALUES_H

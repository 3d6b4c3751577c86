//===- LossScale.h - Scaling of the loss for f16 gradients -----------------===//

#ifndef TBC_PASSES_OPTIMIZER_LOSSSCALE_H
#define TBC_PASSES_OPTIMIZER_LOSSSCALE_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace tbc {

/// The optimizer states of a step with a dynamic loss scale: the scale (f32), and the number of
/// finite steps in a row (i64).
inline constexpr llvm::StringLiteral kLossScaleName = "tbc.loss_scale";
inline constexpr llvm::StringLiteral kGrowthTrackerName = "tbc.growth_tracker";
/// Adam's state: the number of steps taken (i64).
inline constexpr llvm::StringLiteral kStepsTakenName = "tbc.steps_taken";

/// The backward phase starts from `scale` instead of 1, and the update divides the gradients by it.
/// A step with a gradient that is not finite is skipped. Defaults are from torch.amp.GradScaler,
/// except for the scale itself.
struct LossScale {
  /// The initial scale; 0: no scaling.
  double initial = 0;
  double growthFactor = 2, backoffFactor = 0.5;
  /// The number of finite steps in a row after which it grows; 0: it never changes.
  int64_t growthInterval = 2000;

  bool isOn() const { return initial != 0; }
  bool isDynamic() const { return isOn() && growthInterval > 0; }
};

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_LOSSSCALE_H

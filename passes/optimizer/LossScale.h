//===- LossScale.h - What keeps gradients in the range of f16 --------------===//

#ifndef TBC_PASSES_OPTIMIZER_LOSSSCALE_H
#define TBC_PASSES_OPTIMIZER_LOSSSCALE_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace tbc {

/// The optimizer states of a step with a dynamic loss scale: the scale (f32), and the number of
/// steps in a row whose gradients were finite (i64).
inline constexpr llvm::StringLiteral kLossScaleName = "tbc.loss_scale";
inline constexpr llvm::StringLiteral kGrowthTrackerName = "tbc.growth_tracker";
/// Adam's: how many steps were taken (i64).
inline constexpr llvm::StringLiteral kStepsTakenName = "tbc.steps_taken";

/// The backward phase starts from `scale` instead of 1, and the update divides the gradients by it.
/// A step whose gradients are not all finite is skipped. Defaults are those of
/// torch.amp.GradScaler, but for the scale itself.
struct LossScale {
  /// Where it starts; 0: there is none.
  double initial = 0;
  double growthFactor = 2, backoffFactor = 0.5;
  /// After so many finite steps in a row it grows; 0: it stays as it is.
  int64_t growthInterval = 2000;

  bool isOn() const { return initial != 0; }
  bool isDynamic() const { return isOn() && growthInterval > 0; }
};

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_LOSSSCALE_H

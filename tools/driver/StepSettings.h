//===- StepSettings.h - Numeric settings of a training step -----------------===//
//
// Settings of the optimizer, the loss, gradient clipping and the loss scale. The command line sets
// them and plan.json records them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_DRIVER_STEPSETTINGS_H
#define TBC_TOOLS_DRIVER_STEPSETTINGS_H

#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/BuildUpdate.h"
#include "tools/driver/TrainingStep.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::driver {

/// One numeric setting of a step. The default is that of PyTorch's optimizer or loss of the same
/// name.
struct SettingInfo {
  /// The key in plan.json, and the flag.
  std::string name, flag;
  std::string help;
  /// The smallest and largest value. `isOpen`: both ends are excluded.
  double low, high;
  bool isInteger;
  bool isOpen;
  /// The optimizers or losses with this setting; empty: all.
  std::vector<std::string> of;
  /// The value of the flag without an argument.
  std::optional<double> implied = std::nullopt;
  /// Excludes the largest value alone.
  bool isBelow = false;
};

const std::vector<SettingInfo> &settingInfos();

/// The default initial value of a dynamic loss scale, as in torch.amp.GradScaler.
inline constexpr double defaultLossScale = 65536;

/// Checks the settings. Errors: Usage for a setting that is unknown, out of range or of another
/// optimizer or loss.
Status checkSettings(const StepOptions &options);

struct DropoutOptions {
  bool isOn = true;
  int64_t seed = 0;
};

/// Returns the loss scale of the settings. A step with any f16 computation has a dynamic one by
/// default.
LossScale lossScale(const StepOptions &options);
/// Writes the loss scale to `options.settings` if a step in f16 (`isF16`) or its settings have one.
/// Errors: Usage for settings of a missing loss scale.
Status resolveLossScale(StepOptions &options, bool isF16);

LossOptions lossOptions(const StepOptions &options);
OptimizerOptions optimizerOptions(const StepOptions &options);
DropoutOptions dropoutOptions(const StepOptions &options);
/// Returns the divisor for padding a large vocabulary (`padVocabularies`). Example: 128 pads 50257
/// rows to 50304.
int64_t vocabularyMultiple(const StepOptions &options);
/// Returns the capacity factor of experts (`limitExperts`); null: unlimited.
std::optional<double> capacityFactor(const StepOptions &options);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_STEPSETTINGS_H

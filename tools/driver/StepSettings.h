//===- StepSettings.h - The numbers of a training step ----------------------===//
//
// What the command line sets and plan.json records: of the optimizer, the loss, clipping, the loss
// scale.
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

/// One number that a step may be given; what is not given has the default of PyTorch's optimizer or
/// loss of that name.
struct SettingInfo {
  /// As plan.json has it, and the flag.
  std::string name, flag;
  std::string help;
  /// The least and the largest value; `isOpen`: neither of the two themselves.
  double low, high;
  bool isInteger;
  bool isOpen;
  /// The optimizers or losses that have it; none: all.
  std::vector<std::string> of;
  /// What the flag sets where it takes no value itself.
  std::optional<double> implied = std::nullopt;
};

const std::vector<SettingInfo> &settingInfos();

/// Where a dynamic loss scale begins unless told: as torch.amp.GradScaler's.
inline constexpr double defaultLossScale = 65536;

/// Errors: Usage for a setting that is unknown, out of range or of another optimizer or loss.
Status checkSettings(const StepOptions &options);

struct DropoutOptions {
  bool isOn = true;
  int64_t seed = 0;
};

/// Loss scale as the settings have it. A step that computes in f16 anywhere has a dynamic one
/// unless its settings name another.
LossScale lossScale(const StepOptions &options);
/// Writes the loss scale out in `options.settings`, where a step in f16 (`isF16`) or its settings
/// have one. Errors: Usage for settings of a loss scale that there is not.
Status resolveLossScale(StepOptions &options, bool isF16);

LossOptions lossOptions(const StepOptions &options);
OptimizerOptions optimizerOptions(const StepOptions &options);
DropoutOptions dropoutOptions(const StepOptions &options);
/// What is to divide a large vocabulary (padVocabularies).
int64_t vocabularyMultiple(const StepOptions &options);
/// What experts may take (limitExperts); none: everything.
std::optional<double> capacityFactor(const StepOptions &options);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_STEPSETTINGS_H

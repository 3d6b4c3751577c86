//===- RunManifest.h - Describe the inputs and initial values of a run ------===//

#ifndef TBC_TOOLS_DRIVER_RUNMANIFEST_H
#define TBC_TOOLS_DRIVER_RUNMANIFEST_H

#include "planner/plan/Plan.h"
#include "runtime/abi/Program.h"
#include "runtime/train/Manifest.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// Returns the exclusive upper bound of the integers of an input of @train: the size of the indexed
/// table, or the number of classes. 0 if unknown. Example: 50257 for GPT-2's input_ids.
int64_t inputBound(mlir::Value input);

/// Returns the label ignored by the loss, if `input` is labels.
std::optional<int64_t> ignoredLabel(mlir::Value input);

/// Describes inputs and initial values for a run of the Program in `folder`. `programText`: the
/// content of its file. Weight files are read once, for their hashes. Errors: ModelRejected if one
/// cannot be read.
Result<train::Manifest> makeRunManifest(TrainingStep &step, const planner::Plan &plan,
                                        const program::Program &program,
                                        const std::string &programText, const std::string &folder);

/// Returns the seal of a Program's `folder`. It covers the files `names` in the folder and the
/// sources of the Program: the model, and the files of the manifest. Errors: one cannot be read.
Result<program::Seal> makeSeal(const std::string &folder, const std::vector<std::string> &names,
                               const train::Manifest &manifest, const std::string &modelPath);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_RUNMANIFEST_H

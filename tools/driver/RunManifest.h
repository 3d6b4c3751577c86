//===- RunManifest.h - What a run needs besides the Program -----------------===//

#ifndef TBC_TOOLS_DRIVER_RUNMANIFEST_H
#define TBC_TOOLS_DRIVER_RUNMANIFEST_H

#include "planner/core/Plan.h"
#include "runtime/abi/Program.h"
#include "runtime/train/Manifest.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// What integers of input `input` of @train stay below: the size of the tables it indexes, the
/// number of classes it labels; 0 where nothing says.
int64_t inputBound(mlir::Value input);

/// The label that the loss ignores, where `input` is labels.
std::optional<int64_t> ignoredLabel(mlir::Value input);

/// Describes inputs and initial values for a run of the Program, whose file is `programText`, in
/// `folder`. Files of weights are read once, for their hashes.
/// Errors: ModelRejected, where one cannot be read.
Result<train::Manifest> makeRunManifest(TrainingStep &step, const planner::Plan &plan,
                                        const program::Program &program,
                                        const std::string &programText, const std::string &folder);

/// The seal of a Program's `folder`: its files of these names, which are there, and the files of
/// which it was made: the model, and those of the manifest. Errors: one cannot be read.
Result<program::Seal> makeSeal(const std::string &folder, const std::vector<std::string> &names,
                               const train::Manifest &manifest, const std::string &modelPath);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_RUNMANIFEST_H

//===- Outputs.h - Check that outputs can be written --------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_OUTPUTS_H
#define TBC_TOOLS_TBC_RUN_OUTPUTS_H

#include "runtime/train/Trainer.h"

namespace tbc::cli {

/// Checks all output paths before the first step, to fail early instead of after hours. Makes the
/// folders of --checkpoint and --tensorboard; writes test files into them and into those of --log
/// and --profile. Errors: Usage, a checkpoint folder that this run does not resume; Other, naming
/// the flag, the folder and the system's reason.
Status checkOutputs(const train::TrainOptions &options);

/// Refuses an output file that is one of `inputs`, through links too. `flag` may be empty. Errors:
/// Problem::CannotWrite. Example: "cannot write --log model.onnx: it is an input, and would be
/// lost; name another".
Status keepInputs(const std::string &flag, const std::string &file,
                  const std::vector<std::string> &inputs);

/// Refuses outputs of a run that would overwrite each other, a file of its Program, the model's
/// files, or its data.
Status checkFilesAreKept(const train::LoadedProgram &loaded, const train::TrainOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_OUTPUTS_H

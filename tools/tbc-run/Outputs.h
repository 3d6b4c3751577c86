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

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_OUTPUTS_H

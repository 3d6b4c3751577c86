//===- Outputs.h - Whether what a run writes can be written -------------------===//

#ifndef TBC_TOOLS_TBC_RUN_OUTPUTS_H
#define TBC_TOOLS_TBC_RUN_OUTPUTS_H

#include "runtime/train/Trainer.h"

namespace tbc::cli {

/// Looks before the first step at what a run would find out after hours: makes the folders of
/// --checkpoint and --tensorboard, and writes into them and into those of --log and --profile.
/// Errors: Usage, a folder of checkpoints that this run does not resume; Other, naming the flag,
/// the folder and the system's reason.
Status checkOutputs(const train::TrainOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_OUTPUTS_H

//===- TrainFlags.h - The trainer's options from flags -----------------------===//

#ifndef TBC_TOOLS_TBC_RUN_TRAINFLAGS_H
#define TBC_TOOLS_TBC_RUN_TRAINFLAGS_H

#include "runtime/abi/Status.h"
#include "tools/tbc-run/RunOptions.h"

namespace tbc::cli {

/// Converts the flags of `tbc run` to the trainer's options. Errors name the flag.
Result<train::TrainOptions> trainOptions(const RunOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_TRAINFLAGS_H

//===- RunCommand.h - tbc run and tbc-run ------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_RUNCOMMAND_H
#define TBC_TOOLS_TBC_RUN_RUNCOMMAND_H

#include "runtime/abi/Status.h"
#include "tools/tbc-run/RunOptions.h"

namespace tbc::cli {

/// Checks flags that contradict each other, without the Program.
Status checkRunFlags(const RunOptions &options);

/// Runs a Program: launches its ranks on this machine, or runs one rank if a launcher started this
/// process. Returns the exit code, or an error of this process.
Result<int> runProgram(const RunOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_RUNCOMMAND_H

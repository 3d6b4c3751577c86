//===- Launch.h - Scripts that start an exported plan -----------------------===//

#ifndef TBC_TOOLS_EXPORT_LAUNCH_H
#define TBC_TOOLS_EXPORT_LAUNCH_H

#include "tools/export/Export.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::exporter {

enum class Launcher { Torchrun, Slurm, MpiRun };

/// All words of --launcher, and the launcher of a word.
const std::vector<std::string> &launcherNames();
std::optional<Launcher> parseLauncher(const std::string &word);

/// Returns a shell script that starts one process per rank, in the plan's rank order, with the
/// NCCL settings that the plan counts on. `file`: the exported file, in the script's folder.
///
/// Errors: Usage if the target does not run, the launcher cannot start it, or nodes would have
/// different numbers of ranks.
Result<std::string> launchScript(const PlanFacts &facts, const Target &target, Launcher launcher,
                                 const std::string &file);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_LAUNCH_H

//===- Command.h - Common interface of subcommands ---------------------------===//

#ifndef TBC_TOOLS_TBC_COMMAND_H
#define TBC_TOOLS_TBC_COMMAND_H

#include "runtime/abi/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace tbc::cli {

/// Runs a subcommand and returns the exit code (docs/design.md, section 7). Errors are returned;
/// main prints them.
using Action = std::function<Result<int>()>;

/// Each function adds its subcommand to `app`; choosing the subcommand calls `setAction`.
using SetAction = std::function<void(Action)>;
void addCalibrateCommand(CLI::App &app, const SetAction &setAction);
void addCheckCommand(CLI::App &app, const SetAction &setAction);
void addClusterCommand(CLI::App &app, const SetAction &setAction);
void addNewCommand(CLI::App &app, const SetAction &setAction);
void addPlanCommand(CLI::App &app, const SetAction &setAction);
void addDoctorCommand(CLI::App &app, const SetAction &setAction);
void addExplainCommand(CLI::App &app, const SetAction &setAction);
void addExportCommand(CLI::App &app, const SetAction &setAction);
void addJudgeCommand(CLI::App &app, const SetAction &setAction);
void addReportCommand(CLI::App &app, const SetAction &setAction);
void addSizeCommand(CLI::App &app, const SetAction &setAction);
void addTimelineCommand(CLI::App &app, const SetAction &setAction);
void addVerifyCommand(CLI::App &app, const SetAction &setAction);
void addCompileCommand(CLI::App &app, const SetAction &setAction);
void addProgramCommand(CLI::App &app, const SetAction &setAction);
void addRunCommand(CLI::App &app, const SetAction &setAction);
void addCheckpointCommand(CLI::App &app, const SetAction &setAction);
void addCompletionCommand(CLI::App &app, const SetAction &setAction);
void addHelpCommand(CLI::App &app, const SetAction &setAction);

/// Returns the topics of `tbc help`, but for the commands.
std::vector<std::string> helpTopics();

/// Prints the words that may stand for the last of `words`, the words of a command line behind
/// "tbc", one per line; ":files" if a file may stand there. Returns the exit code.
int complete(const CLI::App &app, const std::vector<std::string> &words);

/// Writes `text` to `path` through a temporary file beside it, so a partial file never exists; "-"
/// is standard output. Devices and pipes are written into, and links followed. Errors: Other,
/// naming the path and the system's reason.
Status writeFile(const std::string &path, const std::string &text);
/// Checks before long work that writeFile() can write `path`, and would replace none of `inputs`.
/// Returns its error otherwise.
Status checkWritable(const std::string &path, const std::vector<std::string> &inputs = {});
/// Refuses devices and pipes, for writers that need a file.
Status checkReplaceable(const std::string &path);
/// Reads a whole file. Errors: `code`, naming the path and the system's reason.
Result<std::string> readFile(const std::string &path, ErrorCode code);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_COMMAND_H

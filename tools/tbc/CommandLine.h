//===- CommandLine.h - Errors of a command line ------------------------------===//

#ifndef TBC_TOOLS_TBC_COMMANDLINE_H
#define TBC_TOOLS_TBC_COMMANDLINE_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
} // namespace CLI

namespace tbc::cli {

/// Returns the error of a command line that does not parse, with the closest known word for a
/// misspelt one. Example: `plan --mehs dp=8` gives "unknown flag --mehs; did you mean --mesh?".
/// `arguments`: the words behind the program's name.
Error wrongCommandLine(const CLI::App &app, const CLI::ParseError &error,
                       const std::vector<std::string> &arguments);

/// Returns the subcommand that the parsed words chose, or `app` if none.
const CLI::App &chosenCommand(const CLI::App &app);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_COMMANDLINE_H

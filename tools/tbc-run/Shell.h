//===- Shell.h - What a program does around its command -----------------------===//

#ifndef TBC_TOOLS_TBC_RUN_SHELL_H
#define TBC_TOOLS_TBC_RUN_SHELL_H

#include "runtime/abi/Status.h"

#include <functional>
#include <string>

namespace CLI {
class App;
class ParseError;
} // namespace CLI

namespace tbc::cli {

/// What is wrong with a command line, in words: CLI11 names arguments that it does not know in
/// reverse, together with the values of flags.
std::string describe(const CLI::App &app, const CLI::ParseError &error);

struct Shell {
  /// Called when the command line was understood.
  std::function<Result<int>()> action;
  /// Explains one that was not, on stderr.
  std::function<void(const CLI::ParseError &)> explain;
};

/// Parses the command line by `app`, prints help or version where asked to, else runs the action.
/// The exit code; errors, exceptions of libraries too, go to stderr as "name: message". A result
/// that could not be written to stdout is an error.
int runShell(CLI::App &app, int argc, char **argv, const Shell &shell);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_SHELL_H

//===- Shell.h - Common parts of the programs' main functions -----------------===//

#ifndef TBC_TOOLS_TBC_RUN_SHELL_H
#define TBC_TOOLS_TBC_RUN_SHELL_H

#include "runtime/abi/Status.h"

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
} // namespace CLI

namespace tbc::cli {

/// Parses the words behind the program's name. An empty value is an error, as of a shell variable
/// that is not set: `--mesh ""`, and `--mesh=`, whose value CLI11 takes from the next word. Throws
/// CLI::ParseError.
void parseWords(CLI::App &app, const std::vector<std::string> &words);

/// Describes the error of a command line. CLI11's own message lists unknown arguments in reverse
/// order and mixed with the values of flags.
std::string describe(const CLI::App &app, const CLI::ParseError &error);

/// The same as an error with its code.
Error describedError(const CLI::App &app, const CLI::ParseError &error);

struct Shell {
  /// Called after the command line was parsed.
  std::function<Result<int>()> action;
  /// Explains a parse error on stderr.
  std::function<void(const CLI::ParseError &)> explain;
};

/// Returns the error that an exception of a library stands for. Limits of the system are named:
/// `std::bad_alloc` is memory, EAGAIN of a thread is their number or the memory for its stack.
Error errorOf(const std::exception &exception);

/// Parses the command line with `app`, prints help or version on request, else runs the action.
/// Returns the exit code. Errors and exceptions go to stderr as "name: message". Output that could
/// not be written to stdout is an error.
int runShell(CLI::App &app, int argc, char **argv, const Shell &shell);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_SHELL_H

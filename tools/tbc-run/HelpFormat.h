//===- HelpFormat.h - How --help looks ---------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_HELP_FORMAT_H
#define TBC_TOOLS_TBC_RUN_HELP_FORMAT_H

#include <CLI/CLI.hpp>

namespace tbc::cli {

/// Prints the help of `app` and of all its subcommands in lines of at most 80 columns.
void formatHelp(CLI::App &app);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_HELP_FORMAT_H

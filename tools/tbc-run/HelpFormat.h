//===- HelpFormat.h - Format --help ------------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_HELP_FORMAT_H
#define TBC_TOOLS_TBC_RUN_HELP_FORMAT_H

#include <CLI/CLI.hpp>

namespace tbc::cli {

/// Sets the help of `app` and its subcommands to lines of at most 80 columns.
void formatHelp(CLI::App &app);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_HELP_FORMAT_H

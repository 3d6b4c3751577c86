//===- FlagTable.h - The flags of all subcommands as data -------------------===//

#ifndef TBC_TOOLS_LIBRARY_FLAGTABLE_H
#define TBC_TOOLS_LIBRARY_FLAGTABLE_H

#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace tbc::cli {

/// Returns the subcommands of `app` and their options as JSON. A flag has a name without dashes, a
/// kind ("switch", "integer", "number" or "text"), isList if it is repeatable, and its help. The
/// Python package makes its keywords from it.
/// Example: {"plan": {"flags": [{"name": "gpus", "kind": "integer", "isList": false, "help": ..}]}}
std::string flagTable(const CLI::App &app);

} // namespace tbc::cli

#endif // TBC_TOOLS_LIBRARY_FLAGTABLE_H

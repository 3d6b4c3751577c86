//===- RunSubcommand.cpp - tbc run -------------------------------------------===//

#include "tools/tbc-run/RunCommand.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

namespace tbc::cli {

void addRunCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("run", "Train with a compiled Program");
  auto options = addRunOptions(*command);
  command->callback(
      [options, setAction] { setAction([options] { return runProgram(*options); }); });
}

} // namespace tbc::cli

//===- main.cpp - The tbc program ----------------------------------------------===//

#include "tools/tbc-run/Shell.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/CommandLine.h"

#include "planner/devices/Cluster.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <vector>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

/// Explains a wrong command line on stderr.
static void usageError(const CLI::App &app, const CLI::ParseError &error,
                       const std::vector<std::string> &arguments) {
  const CLI::App &current = cli::chosenCommand(app);
  std::cerr << "tbc: " << cli::wrongCommandLine(app, error, arguments).message << "\n";
  std::cerr << "tbc: see '" << (&current == &app ? "tbc" : "tbc " + current.get_name())
            << " --help'\n";
}

/// Groups the subcommands in `tbc --help`, and adds examples.
static void groupCommands(CLI::App &app) {
  const std::vector<std::pair<const char *, std::vector<const char *>>> groups = {
      {"Look at a model", {"check", "new"}},
      {"Plan", {"plan", "size", "explain", "report", "timeline"}},
      {"Other frameworks", {"export", "judge"}},
      {"Run", {"verify", "compile", "program", "run", "checkpoint"}},
      {"Machines", {"cluster", "calibrate", "doctor"}},
      {"Help", {"help", "completion"}}};
  for (const auto &[group, commands] : groups)
    for (const char *command : commands)
      app.get_subcommand(command)->group(group);
  app.footer("Examples:\n"
             "  $ tbc plan models/gpt2.onnx --gpus 16 -o plan.json\n"
             "  $ tbc explain plan.json --why tp=8\n"
             "  $ tbc report plan.json -o report.html\n\n"
             "tbc help TOPIC has more; 'tbc help' lists the topics.");
}

int main(int argc, char **argv) {
  CLI::App app{"Plans how to train an ONNX model on a cluster, and proves the plan right.", "tbc"};
  app.set_version_flag("--version", "tbc " TBC_VERSION);
  app.require_subcommand(1);
  cli::Action action;
  cli::SetAction setAction = [&](cli::Action chosen) { action = std::move(chosen); };
  cli::addCalibrateCommand(app, setAction);
  cli::addCheckCommand(app, setAction);
  cli::addClusterCommand(app, setAction);
  cli::addNewCommand(app, setAction);
  cli::addPlanCommand(app, setAction);
  cli::addSizeCommand(app, setAction);
  cli::addExplainCommand(app, setAction);
  cli::addExportCommand(app, setAction);
  cli::addJudgeCommand(app, setAction);
  cli::addReportCommand(app, setAction);
  cli::addTimelineCommand(app, setAction);
  cli::addVerifyCommand(app, setAction);
  cli::addCompileCommand(app, setAction);
  cli::addProgramCommand(app, setAction);
  cli::addRunCommand(app, setAction);
  cli::addCheckpointCommand(app, setAction);
  cli::addDoctorCommand(app, setAction);
  cli::addCompletionCommand(app, setAction);
  cli::addHelpCommand(app, setAction);
  groupCommands(app);
  // Called by the scripts of `tbc completion`; its words are no flags of tbc.
  if (argc > 1 && std::string(argv[1]) == "complete")
    return cli::complete(app, std::vector<std::string>(argv + 2, argv + argc));
  cli::Shell shell;
  shell.action = [&] { return action(); };
  shell.explain = [&](const CLI::ParseError &error) {
    usageError(app, error, std::vector<std::string>(argv + 1, argv + argc));
  };
  return cli::runShell(app, argc, argv, shell);
}

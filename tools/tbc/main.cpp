//===- main.cpp - The tbc program ----------------------------------------------===//

#include "runtime/abi/ClosestWord.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/Shell.h"
#include "tools/tbc/Command.h"

#include "planner/devices/Cluster.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <vector>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

/// Returns the names of all options and subcommands of `app` or the current subcommand.
static std::vector<std::string> knownWords(const CLI::App &app) {
  std::vector<std::string> words;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      words.push_back("--" + name);
  for (const CLI::App *sub : app.get_subcommands({})) {
    if (!sub->get_name().empty()) {
      words.push_back(sub->get_name());
      continue;
    }
    for (std::string &word : knownWords(*sub)) // unnamed: a group of options
      words.push_back(std::move(word));
  }
  return words;
}

/// Explains a wrong command line, with a suggestion for a misspelt word.
static void usageError(const CLI::App &app, const CLI::ParseError &error,
                       const std::vector<std::string> &arguments) {
  const CLI::App *current = &app;
  for (const CLI::App *sub : app.get_subcommands())
    current = sub;
  std::vector<std::string> words = knownWords(*current);
  bool unknownCommand = current == &app && !arguments.empty() && arguments[0][0] != '-';
  Error said = unknownCommand ? problem(Problem::UnknownWord, "unknown subcommand " + arguments[0])
                              : cli::describedError(app, error);
  for (const std::string &argument : arguments) {
    std::string word = argument.substr(0, argument.find('='));
    bool known = std::find(words.begin(), words.end(), word) != words.end();
    bool flag = word.rfind("--", 0) == 0;
    if (known || (!flag && current != &app))
      continue;
    std::string suggestion = closestWord(word, words);
    if (!suggestion.empty())
      said =
          problem(Problem::UnknownWord, "unknown " + std::string(flag ? "flag " : "subcommand ") +
                                            word + "; did you mean " + suggestion + "?");
  }
  std::cerr << "tbc: " << said.message << "\n";
  std::cerr << "tbc: see '" << (current == &app ? "tbc" : "tbc " + current->get_name())
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

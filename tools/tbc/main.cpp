//===- main.cpp - The tbc program ----------------------------------------------===//

#include "tools/tbc/Command.h"

#include "planner/core/Cluster.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <iostream>
#include <vector>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

/// The names of all options and subcommands that `app` or the subcommand in use takes.
static std::vector<std::string> knownWords(const CLI::App &app) {
  std::vector<std::string> words;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      words.push_back("--" + name);
  for (const CLI::App *sub : app.get_subcommands({}))
    words.push_back(sub->get_name());
  return words;
}

/// Explains a command line that was not understood, with a suggestion for a misspelt word.
static int usageError(const CLI::App &app, const CLI::ParseError &error,
                      const std::vector<std::string> &arguments) {
  const CLI::App *current = &app;
  for (const CLI::App *sub : app.get_subcommands())
    current = sub;
  std::vector<std::string> words = knownWords(*current);
  bool unknownCommand = current == &app && !arguments.empty() && arguments[0][0] != '-';
  std::cerr << "tbc: "
            << (unknownCommand ? "unknown subcommand " + arguments[0] : std::string(error.what()))
            << "\n";
  for (const std::string &argument : arguments) {
    std::string word = argument.substr(0, argument.find('='));
    bool known = std::find(words.begin(), words.end(), word) != words.end();
    bool flag = word.rfind("--", 0) == 0;
    if (known || (!flag && current != &app))
      continue;
    std::string suggestion = planner::closestWord(word, words);
    if (!suggestion.empty())
      std::cerr << "tbc: did you mean " << suggestion << " instead of " << word << "?\n";
  }
  std::cerr << "tbc: see '" << (current == &app ? "tbc" : "tbc " + current->get_name())
            << " --help'\n";
  return int(ErrorCode::Usage);
}

static int run(int argc, char **argv) {
  CLI::App app{"Plans how to train an ONNX model on a cluster, and proves the plan right.", "tbc"};
  app.set_version_flag("--version", "tbc " TBC_VERSION);
  app.require_subcommand(1);
  cli::Action action;
  cli::SetAction setAction = [&](cli::Action chosen) { action = std::move(chosen); };
  cli::addCheckCommand(app, setAction);
  cli::addClusterCommand(app, setAction);
  cli::addNewCommand(app, setAction);
  cli::addPlanCommand(app, setAction);
  cli::addExplainCommand(app, setAction);
  cli::addVerifyCommand(app, setAction);
  cli::addCompileCommand(app, setAction);
  cli::addProgramCommand(app, setAction);
  cli::addRunCommand(app, setAction);
  cli::addCheckpointCommand(app, setAction);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion &request) {
    return app.exit(request);
  } catch (const CLI::ParseError &error) {
    return usageError(app, error, std::vector<std::string>(argv + 1, argv + argc));
  }
  Result<int> code = action();
  // A result that did not arrive is no result.
  bool printed = std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.flush();
  if (code && !printed)
    code = Error{ErrorCode::Other, "cannot write to stdout"};
  if (code)
    return *code;
  std::cerr << "tbc: " << code.error().message << "\n";
  return int(code.error().code);
}

int main(int argc, char **argv) {
  // Nothing of ours throws; libraries may (out of memory, a broken pipe).
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    std::cerr << "tbc: " << error.what() << "\n";
    return int(ErrorCode::Other);
  }
}

//===- CommandLine.cpp - Errors of a command line ----------------------------===//

#include "tools/tbc/CommandLine.h"

#include "runtime/abi/ClosestWord.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/Shell.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

namespace tbc::cli {

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

const CLI::App &chosenCommand(const CLI::App &app) {
  const CLI::App *current = &app;
  for (const CLI::App *sub : app.get_subcommands())
    current = sub;
  return *current;
}

/// Returns the command that does what other tools call `word`, or "". Example: "diff" gives
/// "explain PLAN --diff OTHER".
static std::string commandLike(const std::string &word) {
  static const std::map<std::string, std::string> commands{{"build", "compile"},
                                                           {"compare", "explain PLAN --diff OTHER"},
                                                           {"diff", "explain PLAN --diff OTHER"},
                                                           {"show", "explain"},
                                                           {"train", "run"}};
  auto found = commands.find(word);
  return found == commands.end() ? "" : found->second;
}

Error wrongCommandLine(const CLI::App &app, const CLI::ParseError &error,
                       const std::vector<std::string> &arguments) {
  const CLI::App *current = &chosenCommand(app);
  std::vector<std::string> words = knownWords(*current);
  bool unknownCommand = current == &app && !arguments.empty() && arguments[0][0] != '-';
  Error wrong = unknownCommand ? problem(Problem::UnknownWord, "unknown subcommand " + arguments[0])
                               : describedError(app, error);
  if (const std::string like = unknownCommand ? commandLike(arguments[0]) : ""; !like.empty())
    return problem(Problem::UnknownWord,
                   "unknown subcommand " + arguments[0] + "; use tbc " + like);
  for (const std::string &argument : arguments) {
    std::string word = argument.substr(0, argument.find('='));
    bool known = std::find(words.begin(), words.end(), word) != words.end();
    bool flag = word.rfind("--", 0) == 0;
    if (known || (!flag && current != &app))
      continue;
    std::string suggestion = closestWord(word, words);
    if (suggestion.empty() && flag && current == &app)
      return problem(Problem::UnknownWord, "unknown flag " + word);
    if (!suggestion.empty())
      wrong =
          problem(Problem::UnknownWord, "unknown " + std::string(flag ? "flag " : "subcommand ") +
                                            word + "; did you mean " + suggestion + "?");
  }
  return wrong;
}

} // namespace tbc::cli

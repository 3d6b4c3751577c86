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

/// Returns the names of the subcommands of `app` that its help shows. Example: "consolidate, list".
static std::string subcommandsOf(const CLI::App &app) {
  std::string names;
  for (const CLI::App *sub : app.get_subcommands({}))
    if (!sub->get_name().empty() && !sub->get_group().empty())
      names += (names.empty() ? "" : ", ") + sub->get_name();
  return names;
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

/// Returns the flag of a command that means what other tools call `word`, or "" if the command has
/// no such flag. Example: "--tp" gives "--pin tp=N".
static std::string flagLike(const std::string &word, const std::vector<std::string> &words) {
  static const std::map<std::string, std::string> flags{
      {"--activation-checkpointing", "--recompute full"},
      {"--batch-size", "--batch"},
      {"--bf16", "--precision bf16"},
      {"--context-parallel-size", "--pin cp=N"},
      {"--cp", "--pin cp=N"},
      {"--data-parallel-size", "--pin dp=N"},
      {"--dp", "--pin dp=N"},
      {"--ep", "--pin ep=N"},
      {"--expert-model-parallel-size", "--pin ep=N"},
      {"--fp16", "--precision f16"},
      {"--fsdp", "--pin fsdp=N"},
      {"--global-batch-size", "--batch"},
      {"--gradient-accumulation-steps", "--pin accumulation=N"},
      {"--micro-batch-size", "--micro-batch"},
      {"--nnodes", "--gpus with the devices of all nodes"},
      {"--nodes", "--gpus with the devices of all nodes"},
      {"--per-device-train-batch-size", "--micro-batch"},
      {"--pipeline-model-parallel-size", "--pin pp=N"},
      {"--pipeline-parallel-size", "--pin pp=N"},
      {"--pp", "--pin pp=N"},
      {"--recompute-activations", "--recompute selective"},
      {"--seq-length", "--seq"},
      {"--tensor-model-parallel-size", "--pin tp=N"},
      {"--tensor-parallel-size", "--pin tp=N"},
      {"--tp", "--pin tp=N"},
      {"--use-distributed-optimizer", "--zero 1"},
      {"--zero-stage", "--zero"}};
  auto found = flags.find(word);
  if (found == flags.end())
    return "";
  const std::string own = found->second.substr(0, found->second.find(' '));
  return std::find(words.begin(), words.end(), own) == words.end() ? "" : found->second;
}

Error wrongCommandLine(const CLI::App &app, const CLI::ParseError &error,
                       const std::vector<std::string> &arguments) {
  std::vector<std::string> words = knownWords(app);
  const bool unknownCommand = !arguments.empty() && arguments[0].rfind("-", 0) != 0 &&
                              std::find(words.begin(), words.end(), arguments[0]) == words.end();
  // "tbc train program" is not about the command "program".
  const CLI::App *current = unknownCommand ? &app : &chosenCommand(app);
  words = knownWords(*current);
  Error wrong = unknownCommand ? problem(Problem::UnknownWord, "unknown subcommand " + arguments[0])
                : error.what() == std::string("A subcommand is required")
                    ? problem(Problem::MissingArgument,
                              "a subcommand is required: " + subcommandsOf(*current))
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
    if (const std::string like = flagLike(word, words); !like.empty())
      return problem(Problem::UnknownWord, "unknown flag " + word + "; use " + like);
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

//===- Shell.cpp - Common parts of the programs' main functions ---------------===//

#include "tools/tbc-run/Shell.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/HelpFormat.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace tbc::cli {

/// Adds the names of the given options among `names` to `given`, those of subcommands too.
static void findGiven(const CLI::App &app, const std::vector<std::string> &names,
                      std::vector<std::string> &given) {
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 0 &&
        std::find(names.begin(), names.end(), option->get_name()) != names.end())
      given.push_back(option->get_name());
  for (const CLI::App *sub : app.get_subcommands({}))
    findGiven(*sub, names, given);
}

/// Returns the sentence about several options of a group that takes one, or "" for another error.
static std::string severalOfGroup(const CLI::App &app, const std::string &message) {
  const std::string begin = "Requires at most 1 options be given from [";
  if (message.rfind(begin, 0) != 0)
    return "";
  const std::string list = message.substr(begin.size(), message.rfind(']') - begin.size());
  std::vector<std::string> given;
  findGiven(app, CLI::detail::split(list, ','), given);
  return CLI::detail::join(given, " and ") + " do not go together; give one of them";
}

/// Returns the sentence about an option that is given too often, or "" for another error. CLI11's
/// message is "--gpus: At Most 1 required but received 2".
static std::string givenTooOften(const std::string &message) {
  const size_t colon = message.find(": At Most 1 required but received ");
  return colon == std::string::npos
             ? ""
             : message.substr(0, colon) + " is given several times; give it once";
}

std::string describe(const CLI::App &app, const CLI::ParseError &error) {
  if (!dynamic_cast<const CLI::ExtrasError *>(&error)) {
    if (const std::string text = severalOfGroup(app, error.what()); !text.empty())
      return text;
    const std::string text = givenTooOften(error.what());
    return text.empty() ? error.what() : text;
  }
  std::vector<std::string> words = app.remaining(/*recurse=*/true);
  for (const std::string &word : words)
    if (word.rfind("-", 0) == 0) {
      std::error_code ignored;
      const bool isFile = std::filesystem::is_regular_file(word, ignored);
      return "unknown flag " + word + (isFile ? "; write the file of this name as ./" + word : "");
    }
  return words.empty() ? error.what() : "unexpected argument " + words.front();
}

Error describedError(const CLI::App &app, const CLI::ParseError &error) {
  const bool excludes = !severalOfGroup(app, error.what()).empty() ||
                        dynamic_cast<const CLI::ExcludesError *>(&error) ||
                        dynamic_cast<const CLI::RequiresError *>(&error);
  const bool lacksOne = dynamic_cast<const CLI::RequiredError *>(&error) ||
                        dynamic_cast<const CLI::ArgumentMismatch *>(&error);
  Problem kind = Problem::BadFlagValue;
  if (dynamic_cast<const CLI::ExtrasError *>(&error))
    kind = Problem::UnknownWord;
  else if (excludes)
    kind = Problem::FlagsExclude;
  else if (lacksOne && givenTooOften(error.what()).empty())
    kind = Problem::MissingArgument;
  return problem(kind, describe(app, error));
}

/// Refuses options with an empty value, as of a shell variable that is not set. Many would be taken
/// for options that are not given.
static void refuseEmptyValues(const CLI::App &app) {
  for (const CLI::Option *option : app.get_options())
    for (const std::string &value : option->results())
      if (value.empty())
        throw CLI::ValidationError(option->get_name(), "the value is empty");
  for (const CLI::App *sub : app.get_subcommands({}))
    refuseEmptyValues(*sub);
}

void parseWords(CLI::App &app, const std::vector<std::string> &words) {
  std::vector<std::string> reversed; // CLI11 wants the last first
  bool isPositional = false;         // behind "--"
  for (const std::string &word : words) {
    isPositional |= word == "--";
    // `--mesh=` becomes `--mesh ""`.
    const bool isEmpty =
        !isPositional && word.rfind("--", 0) == 0 && word.find('=') == word.size() - 1;
    reversed.push_back(isEmpty ? word.substr(0, word.size() - 1) : word);
    if (isEmpty)
      reversed.emplace_back();
  }
  std::reverse(reversed.begin(), reversed.end());
  app.parse(std::move(reversed));
  refuseEmptyValues(app);
}

static int parseAndRun(CLI::App &app, int argc, char **argv, const Shell &shell) {
  formatHelp(app);
  try {
    parseWords(app, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const CLI::CallForHelp &request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion &request) {
    return app.exit(request);
  } catch (const CLI::ParseError &error) {
    shell.explain(error);
    return int(ErrorCode::Usage);
  }
  Result<int> code = shell.action();
  // Output that could not be written is an error.
  bool printed = std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.flush();
  if (code && !printed)
    code = problem(Problem::CannotPrint, "cannot write to stdout");
  if (code)
    return *code;
  std::cerr << app.get_name() << ": " << withCode(code.error()).message << "\n";
  return int(code.error().code);
}

Error errorOf(const std::exception &exception) {
  if (dynamic_cast<const std::bad_alloc *>(&exception))
    return problem(Problem::Failed, "out of memory: an allocation was refused; raise the limit on "
                                    "memory (ulimit -v, cgroup), or take a smaller batch or model");
  auto *refused = dynamic_cast<const std::system_error *>(&exception);
  if (refused && refused->code() == std::errc::resource_unavailable_try_again)
    return problem(Problem::Failed, "a thread cannot be started: raise the limits on threads and "
                                    "memory (ulimit -u, ulimit -v, cgroup), or lower --threads");
  return problem(Problem::Failed, exception.what());
}

/// Fills standard streams that were closed (`>&-`), so that no file or socket gets their numbers
/// and with them lines for the user. Writing to such a stream still fails.
static void fillStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      static_cast<void>(open("/dev/null", O_RDONLY)); // takes the lowest free number
}

int runShell(CLI::App &app, int argc, char **argv, const Shell &shell) {
  fillStandardStreams();
  // tbc does not throw, but libraries may (out of memory, a broken pipe).
  try {
    return parseAndRun(app, argc, argv, shell);
  } catch (const std::exception &error) {
    std::cerr << app.get_name() << ": " << errorOf(error).message << "\n";
    return int(ErrorCode::Other);
  }
}

} // namespace tbc::cli

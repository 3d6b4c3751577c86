//===- Shell.cpp - Common parts of the programs' main functions ---------------===//

#include "tools/tbc-run/Shell.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/HelpFormat.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <iostream>
#include <vector>

namespace tbc::cli {

std::string describe(const CLI::App &app, const CLI::ParseError &error) {
  if (!dynamic_cast<const CLI::ExtrasError *>(&error))
    return error.what();
  std::vector<std::string> words = app.remaining(/*recurse=*/true);
  for (const std::string &word : words)
    if (word.rfind("-", 0) == 0)
      return "unknown flag " + word;
  return words.empty() ? error.what() : "unexpected argument " + words.front();
}

Error describedError(const CLI::App &app, const CLI::ParseError &error) {
  Problem kind = Problem::BadFlagValue;
  if (dynamic_cast<const CLI::ExtrasError *>(&error))
    kind = Problem::UnknownWord;
  else if (dynamic_cast<const CLI::RequiredError *>(&error) ||
           dynamic_cast<const CLI::ArgumentMismatch *>(&error))
    kind = Problem::MissingArgument;
  else if (dynamic_cast<const CLI::ExcludesError *>(&error) ||
           dynamic_cast<const CLI::RequiresError *>(&error))
    kind = Problem::FlagsExclude;
  return problem(kind, describe(app, error));
}

static int parseAndRun(CLI::App &app, int argc, char **argv, const Shell &shell) {
  formatHelp(app);
  try {
    app.parse(argc, argv);
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

int runShell(CLI::App &app, int argc, char **argv, const Shell &shell) {
  // tbc does not throw, but libraries may (out of memory, a broken pipe).
  try {
    return parseAndRun(app, argc, argv, shell);
  } catch (const std::exception &error) {
    std::cerr << app.get_name() << ": " << problem(Problem::Failed, error.what()).message << "\n";
    return int(ErrorCode::Other);
  }
}

} // namespace tbc::cli

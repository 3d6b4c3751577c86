//===- HelpCommand.cpp - tbc help ------------------------------------------------===//

#include "runtime/abi/ClosestWord.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <sstream>

namespace tbc::cli {

/// Returns `words` in lines of at most 80 columns, each after `margin` blanks.
static std::string wrapped(const std::string &words, size_t margin) {
  constexpr size_t lineWidth = 80;
  std::string text, line(margin, ' ');
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    if (line.size() > margin && line.size() + 1 + word.size() > lineWidth) {
      text += line + "\n";
      line.assign(margin, ' ');
    }
    line += (line.size() > margin ? " " : "") + word;
  }
  return text + line + "\n";
}

static std::string textOf(const ProblemPage &page) {
  return codeOf(page.problem) + ": " + page.title + "\n\n" + wrapped(page.meaning, 2) +
         "\nExample\n" + wrapped(page.example, 2) + "\nWhat to do\n" + wrapped(page.remedy, 2) +
         "\nThe exit code is " + std::to_string(int(exitCodeOf(page.problem))) + ".\n";
}

static std::string allProblems() {
  std::string text = "Codes of errors; 'tbc help CODE' prints the page of one.\n\n";
  for (const ProblemPage &page : problemPages())
    text += "  " + codeOf(page.problem) + "  " + page.title + "\n";
  return text;
}

static const char exitCodes[] = "Exit codes\n\n"
                                "   0  done\n"
                                "   1  something of the machine failed\n"
                                "   2  a flag or an input file is wrong\n"
                                "   3  the model is refused\n"
                                "   4  no plan exists\n"
                                "   5  a check failed\n"
                                "   6  a rank failed\n"
                                "   7  a rank did not answer\n"
                                "   8  stopped on request, with its state saved\n"
                                "   9  a checkpoint cannot be read\n"
                                "  10  tbc explain --diff: the plans differ\n"
                                "  11  the loss is not finite\n";

std::vector<std::string> helpTopics() {
  std::vector<std::string> topics = {"errors", "exit-codes"};
  for (const ProblemPage &page : problemPages())
    topics.push_back(codeOf(page.problem));
  return topics;
}

/// Returns the text about `topic`.
static Result<std::string> textAbout(const CLI::App &app, const std::string &topic) {
  if (topic.empty()) // app.help() would be the help of `tbc help`, the subcommand on the line
    return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal) +
           "\nTopics:\n  errors      the codes of errors\n  exit-codes  what the exit codes mean\n"
           "  COMMAND     the flags of a command\n  TBC0206     the page of an error\n";
  if (topic == "errors")
    return allProblems();
  if (topic == "exit-codes")
    return std::string(exitCodes);
  for (const ProblemPage &page : problemPages())
    if (CLI::detail::to_lower(codeOf(page.problem)) == CLI::detail::to_lower(topic))
      return textOf(page);
  std::vector<std::string> known = helpTopics();
  for (const CLI::App *sub : app.get_subcommands([](const CLI::App *) { return true; })) {
    if (sub->get_name() == topic)
      return sub->help("tbc");
    known.push_back(sub->get_name());
  }
  std::string closest = closestWord(topic, known);
  return problem(Problem::UnknownTopic, "there is no help about \"" + topic + "\"" +
                                            (closest.empty() ? "; tbc help lists the topics"
                                                             : "; did you mean " + closest + "?"));
}

void addHelpCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("help", "Print help about a topic or an error");
  auto topic = std::make_shared<std::string>();
  command->add_option("topic", *topic, "A command, errors, exit-codes, or a code such as TBC0206");
  command->callback([&app, topic, setAction] {
    setAction([&app, topic]() -> Result<int> {
      auto text = textAbout(app, *topic);
      if (!text)
        return text.error();
      std::cout << *text;
      return 0;
    });
  });
}

} // namespace tbc::cli

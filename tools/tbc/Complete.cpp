//===- Complete.cpp - Words that may stand on a command line -------------------===//

#include "planner/devices/Cluster.h"
#include "planner/plan/PlanFile.h"
#include "planner/support/IdList.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace tbc::cli {

namespace {

using Words = std::vector<std::string>;

/// Candidates for a word.
struct Candidates {
  Words words;
  bool takesFiles = false;
};

} // namespace

/// Calls `visit` with the options of `app` and of its option groups.
template <typename Visit> static void forOptions(const CLI::App &app, const Visit &visit) {
  for (const CLI::Option *option : app.get_options())
    visit(*option);
  for (const CLI::App *sub : app.get_subcommands([](const CLI::App *) { return true; }))
    if (sub->get_name().empty())
      forOptions(*sub, visit);
}

/// Returns the option of this flag, or null.
static const CLI::Option *findFlag(const CLI::App &app, const std::string &flag) {
  const CLI::Option *found = nullptr;
  forOptions(app, [&](const CLI::Option &option) {
    if (flag.size() > 1 && flag[0] == '-' && option.check_name(flag))
      found = &option;
  });
  return found;
}

/// Returns the values that --help lists: of "TEXT:{loop,v}", loop and v.
static Words listedValues(const CLI::Option &option) {
  const std::string text = option.get_type_name();
  size_t begin = text.find('{'), end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return {};
  return CLI::detail::split(text.substr(begin + 1, end - begin - 1), ',');
}

/// Returns the parameters of the first plan file on the line.
static Words tensorsOfPlan(const Words &line) {
  for (const std::string &word : line) {
    auto text = readFile(word, ErrorCode::Usage);
    if (!text)
      continue;
    auto plan = planner::readPlan(*text, word);
    if (!plan)
      continue;
    Words names;
    for (const auto &group : plan->layout.parameters)
      if (auto expanded = planner::expandIds(group.names))
        names.insert(names.end(), expanded->begin(), expanded->end());
    return names;
  }
  return {};
}

/// Returns the axes that may follow the last comma of `word`. Example: after "dp=2," all but dp.
static Words meshAxes(const std::string &word) {
  size_t comma = word.rfind(',');
  const std::string before = comma == std::string::npos ? "" : word.substr(0, comma + 1);
  Words words;
  for (const std::string &axis : mesh::axisNames())
    if (("," + before).find("," + axis + "=") == std::string::npos)
      words.push_back(before + axis + "=");
  return words;
}

/// Returns the values of an option.
static Candidates valuesOf(const CLI::Option &option, const Words &line, const std::string &word) {
  if (option.check_name("--mesh"))
    return {meshAxes(word)};
  if (option.check_name("--tensor"))
    return {tensorsOfPlan(line)};
  if (option.check_name("--cluster") || option.check_name("cluster"))
    return {planner::clusterPresets(), true};
  if (option.check_name("topic"))
    return {helpTopics()};
  Words listed = listedValues(option);
  bool isNumber = option.get_type_name().rfind("TEXT", 0) != 0;
  return {listed, listed.empty() && !isNumber};
}

static bool takesValue(const CLI::Option &option) { return option.get_items_expected_max() > 0; }

/// Returns the candidates for `word` after `line`.
static Candidates candidates(const CLI::App &root, const Words &line, const std::string &word) {
  const CLI::App *app = &root;
  size_t numPositionals = 0;
  const CLI::Option *pending = nullptr;
  for (const std::string &before : line) {
    if (pending) {
      pending = nullptr;
      continue;
    }
    auto subs = app->get_subcommands(
        [&](const CLI::App *sub) { return !sub->get_name().empty() && sub->get_name() == before; });
    if (!subs.empty()) {
      app = subs.front();
      numPositionals = 0;
    } else if (const CLI::Option *option = findFlag(*app, before); option && takesValue(*option)) {
      pending = option;
    } else if (before.empty() || before[0] != '-') {
      ++numPositionals;
    }
  }
  if (pending)
    return valuesOf(*pending, line, word);
  if (size_t equals = word.find('='); word.rfind("--", 0) == 0 && equals != std::string::npos) {
    const CLI::Option *option = findFlag(*app, word.substr(0, equals));
    if (!option)
      return {};
    Candidates found = valuesOf(*option, line, word.substr(equals + 1));
    for (std::string &value : found.words)
      value = word.substr(0, equals + 1) + value;
    return found;
  }
  Candidates found;
  if (!word.empty() && word[0] == '-') {
    forOptions(*app, [&](const CLI::Option &option) {
      for (const std::string &name : option.get_lnames())
        found.words.push_back("--" + name);
    });
    return found;
  }
  for (const CLI::App *sub : app->get_subcommands([](const CLI::App *) { return true; }))
    if (!sub->get_name().empty())
      found.words.push_back(sub->get_name());
  size_t index = 0;
  const CLI::Option *positional = nullptr;
  forOptions(*app, [&](const CLI::Option &option) {
    if (option.get_positional() &&
        (index++ == numPositionals || option.get_items_expected_max() > 1))
      positional = &option;
  });
  if (positional) {
    Candidates values = valuesOf(*positional, line, word);
    found.words.insert(found.words.end(), values.words.begin(), values.words.end());
    found.takesFiles = values.takesFiles;
  }
  return found;
}

int complete(const CLI::App &app, const Words &words) {
  Words line = words;
  std::string word;
  if (!line.empty()) {
    word = line.back();
    line.pop_back();
  }
  Candidates found = candidates(app, line, word);
  std::sort(found.words.begin(), found.words.end());
  for (const std::string &candidate : found.words)
    if (candidate.rfind(word, 0) == 0)
      std::cout << candidate << "\n";
  if (found.takesFiles)
    std::cout << ":files\n";
  return 0;
}

} // namespace tbc::cli

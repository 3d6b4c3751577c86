//===- HelpFormat.cpp - Format --help ----------------------------------------===//

#include "tools/tbc-run/HelpFormat.h"

#include <memory>

namespace tbc::cli {

/// Two less than a terminal's 80, because option groups are indented by two columns.
static constexpr size_t lineColumns = 78;

/// Wraps `text` at `columns`, after one of `separators` if possible.
static std::vector<std::string> wrapped(std::string text, size_t columns,
                                        const std::string &separators) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    // A space at the end of a line is not printed, so it may be just after the last column.
    size_t at = text.find_last_of(separators, text[columns] == ' ' ? columns : columns - 1);
    size_t taken = at == std::string::npos || at == 0 ? columns : at + 1;
    std::string line = text.substr(0, taken);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    text.erase(0, taken);
  }
  lines.push_back(text);
  return lines;
}

namespace {

class HelpFormat : public CLI::Formatter {
public:
  std::string make_help(const CLI::App *app, std::string name,
                        CLI::AppFormatMode mode) const override {
    // Option groups end lines with a space; every group begins and ends with an empty line.
    std::string text =
        CLI::detail::find_and_replace(Formatter::make_help(app, name, mode), " \n", "\n");
    return CLI::detail::find_and_replace(text, "\n\n\n", "\n\n");
  }
  std::string make_option(const CLI::Option *option, bool isPositional) const override {
    std::string left = make_option_name(option, isPositional) + make_option_opts(option);
    std::string text;
    std::vector<std::string> lines = wrapped(left, lineColumns - 6, " ,");
    for (size_t i = 0; i + 1 < lines.size(); ++i)
      text += std::string(i == 0 ? 2 : 6, ' ') + lines[i] + "\n";
    return text + describedLine(std::string(lines.size() > 1 ? 6 : 2, ' ') + lines.back(),
                                make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App *sub) const override {
    return describedLine("  " + sub->get_name(), sub->get_description());
  }

private:
  /// Returns `name`, and `description` from the second column on.
  std::string describedLine(std::string name, const std::string &description) const {
    std::string margin(column_width_, ' ');
    if (description.empty())
      return name + "\n";
    if (name.size() < column_width_)
      name.resize(column_width_, ' ');
    else
      name += "\n" + margin;
    std::string text;
    for (const std::string &line : wrapped(description, lineColumns - column_width_, " "))
      text += (text.empty() ? name : margin) + line + "\n";
    return text;
  }
};

} // namespace

static void setFormat(CLI::App &app, const std::shared_ptr<HelpFormat> &format) {
  app.formatter(format);
  for (CLI::App *sub : app.get_subcommands([](CLI::App *) { return true; }))
    setFormat(*sub, format);
}

void formatHelp(CLI::App &app) { setFormat(app, std::make_shared<HelpFormat>()); }

} // namespace tbc::cli

//===- Entries.cpp - Configuration files as keys and values -----------------===//

#include "tools/judge/Entries.h"

#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include <sstream>

namespace tbc::judge {

static void addJson(const nlohmann::json &json, const std::string &key, std::vector<Entry> &out) {
  if (json.is_object()) {
    for (const auto &[name, value] : json.items())
      addJson(value, key.empty() ? name : key + "." + name, out);
    return;
  }
  out.push_back({key, json.is_string() ? json.get<std::string>() : json.dump()});
}

Result<std::vector<Entry>> jsonEntries(const std::string &text, const std::string &source) {
  try {
    std::vector<Entry> entries;
    addJson(nlohmann::json::parse(text), "", entries);
    return entries;
  } catch (const nlohmann::json::exception &) {
    return Error{ErrorCode::Usage, source + ": the text is not JSON, or is cut off"};
  }
}

/// Returns a value as text; a list as its elements with ", " between.
static std::string tomlText(const toml::node &node) {
  if (auto text = node.value<std::string>())
    return *text;
  if (auto number = node.value_exact<int64_t>())
    return std::to_string(*number);
  if (auto flag = node.value_exact<bool>())
    return *flag ? "true" : "false";
  if (auto real = node.value_exact<double>())
    return std::to_string(*real);
  std::string list;
  if (const toml::array *array = node.as_array())
    for (const toml::node &element : *array)
      list += (list.empty() ? "" : ", ") + tomlText(element);
  return list;
}

static void addToml(const toml::table &table, const std::string &key, std::vector<Entry> &out) {
  for (const auto &[name, node] : table) {
    std::string path = (key.empty() ? "" : key + ".") + std::string(name.str());
    if (const toml::table *inner = node.as_table()) {
      addToml(*inner, path, out);
      continue;
    }
    out.push_back({path, tomlText(node)});
  }
}

Result<std::vector<Entry>> tomlEntries(const std::string &text, const std::string &source) {
  try {
    std::vector<Entry> entries;
    addToml(toml::parse(text), "", entries);
    return entries;
  } catch (const toml::parse_error &error) {
    return Error{ErrorCode::Usage, source + ":" + std::to_string(error.source().begin.line) +
                                       ": not TOML: " + std::string(error.description())};
  }
}

static std::string trimmed(const std::string &text) {
  size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

Result<std::vector<Entry>> yamlEntries(const std::string &text, const std::string &source) {
  std::vector<Entry> entries;
  std::vector<std::pair<size_t, std::string>> above; // indentation and path
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::string content = trimmed(line);
    if (content.empty() || content[0] == '#' || content == "---")
      continue;
    size_t colon = content.find(':');
    if (content[0] == '-' || content[0] == '{' || colon == std::string::npos || colon == 0)
      return Error{ErrorCode::Usage, source + ":" + std::to_string(number) +
                                         ": only KEY: VALUE and nested keys are read here"};
    size_t indent = line.find_first_not_of(' ');
    while (!above.empty() && above.back().first >= indent)
      above.pop_back();
    std::string key = (above.empty() ? "" : above.back().second + ".") + content.substr(0, colon);
    std::string value = trimmed(content.substr(colon + 1));
    if (size_t comment = value.find(" #"); comment != std::string::npos)
      value = trimmed(value.substr(0, comment));
    if (value.size() > 1 && (value[0] == '\'' || value[0] == '"') && value.back() == value[0])
      value = value.substr(1, value.size() - 2);
    if (value == "{}")
      continue;
    if (value.empty())
      above.push_back({indent, key});
    else
      entries.push_back({key, value});
  }
  return entries;
}

std::vector<std::string> shellWords(const std::string &text) {
  std::vector<std::string> words;
  std::string word;
  bool isOpen = false;
  char quote = 0;
  auto end = [&] {
    if (isOpen)
      words.push_back(word);
    word.clear();
    isOpen = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      isOpen = true;
    } else if (quote == 0 && c == '#' && !isOpen) {
      while (i < text.size() && text[i] != '\n')
        ++i;
    } else if (quote == 0 && c == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      end();
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(c))) {
      end();
    } else {
      word += c;
      isOpen = true;
    }
  }
  end();
  return words;
}

Result<std::vector<Entry>> keywordEntries(const std::string &text, const std::string &source) {
  std::vector<Entry> entries;
  for (const std::string &word : shellWords(text)) {
    size_t at = word.find('=');
    if (at == std::string::npos || at == 0)
      return Error{ErrorCode::Usage, source + ": \"" + word + "\" is no KEY=VALUE"};
    std::string value = word.substr(at + 1);
    if (!value.empty() && value.back() == ',')
      value.pop_back();
    entries.push_back({word.substr(0, at), value});
  }
  return entries;
}

} // namespace tbc::judge

//===- WordFlags.cpp - Validators of flags with a choice of words -------------===//

#include "tools/tbc-run/WordFlags.h"

#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <cctype>

namespace tbc::cli {

/// Returns the word in lower case, with '-' for '_'.
static std::string plain(std::string word) {
  for (char &c : word)
    c = c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

CLI::Validator oneOf(std::vector<std::string> words, Spellings spellings) {
  const std::string listed = CLI::detail::join(words, ", ");
  const std::string shown = "{" + CLI::detail::join(words, ",") + "}";
  auto replace = [words = std::move(words), spellings = std::move(spellings),
                  listed](std::string &text) {
    const std::string asked = plain(text);
    auto isAsked = [&](const std::string &word) { return word == text || plain(word) == asked; };
    if (auto word = std::find_if(words.begin(), words.end(), isAsked); word != words.end()) {
      text = *word;
      return std::string();
    }
    if (auto known = spellings.find(asked); known != spellings.end()) {
      text = known->second;
      return std::string();
    }
    std::vector<std::string> names = words;
    for (const auto &[other, word] : spellings)
      names.push_back(other);
    std::string closest = closestWord(asked, names);
    if (auto known = spellings.find(closest); known != spellings.end())
      closest = known->second;
    return "\"" + text + "\" is not one of " + listed +
           (closest.empty() ? "" : "; did you mean " + closest + "?");
  };
  return CLI::Validator(replace, shown);
}

} // namespace tbc::cli

//===- Entries.h - Configuration files as keys and values -------------------===//

#ifndef TBC_TOOLS_JUDGE_ENTRIES_H
#define TBC_TOOLS_JUDGE_ENTRIES_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Each returns the leaves of a file, nested keys joined by dots. Example: {"a": {"b": 1}} gives
/// a.b = 1. Errors: Usage, with `source` and the position.
Result<std::vector<Entry>> jsonEntries(const std::string &text, const std::string &source);
Result<std::vector<Entry>> tomlEntries(const std::string &text, const std::string &source);
/// Reads KEY: VALUE with nesting by indentation, as accelerate writes it. Lists are errors.
Result<std::vector<Entry>> yamlEntries(const std::string &text, const std::string &source);
/// Splits a command line at blanks, with the quotes of a shell; lines of comment are left out.
std::vector<std::string> shellWords(const std::string &text);
/// Reads KEY=VALUE words.
Result<std::vector<Entry>> keywordEntries(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_ENTRIES_H

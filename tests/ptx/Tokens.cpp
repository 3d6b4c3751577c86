//===- Tokens.cpp - The words of PTX ---------------------------------------===//

#include "tests/ptx/Tokens.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace tbc::ptx {

static bool isWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_$%.:", c) != nullptr;
}

std::vector<Token> split(const std::string &text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      size_t end = std::min(text.find("*/", i), text.size());
      for (; i < end; ++i)
        line += text[i] == '\n';
      i = std::min(end + 2, text.size());
    } else if (c == '"') {
      size_t end = std::min(text.find('"', i + 1), text.size() - 1);
      tokens.push_back({text.substr(i, end + 1 - i), line});
      i = end + 1;
    } else if (isWord(c)) {
      size_t end = i;
      while (end < text.size() && isWord(text[end]))
        ++end;
      // "label:" ends in one colon; "L2::128B" has two.
      if (text[end - 1] == ':' && end - 1 > i)
        --end;
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    } else {
      tokens.push_back({std::string(1, c), line});
      ++i;
    }
  }
  return tokens;
}

} // namespace tbc::ptx

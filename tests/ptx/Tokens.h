//===- Tokens.h - The words of PTX -----------------------------------------===//

#ifndef TBC_TESTS_PTX_TOKENS_H
#define TBC_TESTS_PTX_TOKENS_H

#include <string>
#include <vector>

namespace tbc::ptx {

struct Token {
  std::string text;
  int line = 0; // from 1
};

/// Words (with their dots and colons), numbers, strings and single characters, without comments.
std::vector<Token> split(const std::string &text);

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_TOKENS_H

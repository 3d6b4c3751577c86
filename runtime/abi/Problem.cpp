//===- Problem.cpp - The kinds of problems that users meet ---------------------===//

#include "runtime/abi/Problem.h"

#include <cstdio>

namespace tbc {

const std::vector<ProblemPage> &problemPages() {
  static const std::vector<ProblemPage> pages = {
#define TBC_PROBLEM(number, name, title, meaning, example, remedy)                                 \
  {Problem::name, title, meaning, example, remedy},
#include "runtime/abi/Problems.def"
#undef TBC_PROBLEM
  };
  return pages;
}

std::string codeOf(Problem problem) {
  char code[16];
  std::snprintf(code, sizeof code, "TBC%04d", int(problem));
  return code;
}

/// A code in a message: " [TBC0206]".
struct CodeInText {
  size_t begin = std::string::npos;
  static constexpr size_t length = 10;
};

static CodeInText findCode(const std::string &message) {
  for (size_t begin = message.find(" [TBC"); begin != std::string::npos;
       begin = message.find(" [TBC", begin + 1)) {
    size_t end = message.find_first_not_of("0123456789", begin + 5);
    if (end == begin + 9 && message[end] == ']')
      return {begin};
  }
  return {};
}

Error problem(Problem kind, const std::string &message) {
  return {exitCodeOf(kind), message + " [" + codeOf(kind) + "]"};
}

Error ofKind(Problem kind, Error error) {
  if (error.code != exitCodeOf(kind) || findCode(error.message).begin != std::string::npos)
    return error;
  return problem(kind, error.message);
}

Error withCode(Error error) {
  CodeInText code = findCode(error.message);
  if (code.begin == std::string::npos)
    return problem(Problem(int(error.code) * 100), error.message);
  std::string text = error.message.substr(code.begin, CodeInText::length);
  // The first one is the most specific; others are of the steps around it.
  for (; code.begin != std::string::npos; code = findCode(error.message))
    error.message.erase(code.begin, CodeInText::length);
  error.message += text;
  return error;
}

} // namespace tbc

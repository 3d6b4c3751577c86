//===- Shell.h - Programs run as users run them ------------------------------===//

#ifndef TBC_TESTS_SUPPORT_SHELL_H
#define TBC_TESTS_SUPPORT_SHELL_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>

namespace tbc::test {

/// How a program ended, and what it said.
struct Outcome {
  int code = -1; // minus the signal that killed it
  std::string out, err;
};

/// Empty where there is no such file.
inline std::string readAll(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Of the status that `wait` and `std::system` give.
inline int codeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs a shell line in `folder`, where it leaves out.txt and err.txt.
inline Outcome shellIn(const std::filesystem::path &folder, const std::string &line) {
  std::string whole =
      "cd '" + folder.string() + "' && { " + line + "; } >out.txt 2>err.txt </dev/null";
  Outcome outcome;
  outcome.code = codeOf(std::system(whole.c_str()));
  outcome.out = readAll(folder / "out.txt");
  outcome.err = readAll(folder / "err.txt");
  return outcome;
}

} // namespace tbc::test

#endif // TBC_TESTS_SUPPORT_SHELL_H

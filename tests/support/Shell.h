//===- Shell.h - Runs shell commands as users do --------------------------===//

#ifndef TBC_TESTS_SUPPORT_SHELL_H
#define TBC_TESTS_SUPPORT_SHELL_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>

namespace tbc::test {

/// The exit code and output of a program.
struct Outcome {
  int code = -1; // minus the signal that killed it
  std::string out, err;
};

/// Returns the file's content, or "" if there is no such file.
inline std::string readAll(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns the exit code, or minus the signal, from a status of `wait` or `std::system`. Example:
/// -9 after SIGKILL.
inline int codeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs a shell line in `folder`. Leaves out.txt and err.txt there.
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

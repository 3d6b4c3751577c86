//===- Process.cpp - Runs a program and measures it -----------------------===//

#include "tests/hostile/Process.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tbc::test {

static std::string readWhole(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

static std::string inShellQuotes(const std::string &word) {
  std::string text = "'";
  for (char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

ProcessOutcome runProcess(const std::vector<std::string> &arguments, const std::string &folder,
                          const std::string &outputPath) {
  std::string out = outputPath.empty() ? folder + "/out.txt" : outputPath;
  std::string line = "cd " + inShellQuotes(folder) + " && " TBC_MEASURE " measured.txt 60";
  for (const std::string &argument : arguments)
    line += " " + inShellQuotes(argument);
  line += " >" + inShellQuotes(out) + " 2>err.txt </dev/null";
  if (int status = std::system(line.c_str()); status != 0)
    throw std::runtime_error("cannot run " + line + ": " + std::to_string(status));
  ProcessOutcome outcome;
  int64_t peakKibibytes = 0;
  std::ifstream(folder + "/measured.txt") >> outcome.code >> outcome.seconds >> peakKibibytes;
  outcome.peakBytes = peakKibibytes * 1024;
  if (outputPath.empty())
    outcome.out = readWhole(out);
  outcome.err = readWhole(folder + "/err.txt");
  return outcome;
}

} // namespace tbc::test

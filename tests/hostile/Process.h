//===- Process.h - Runs a program and measures it -------------------------===//

#ifndef TBC_TESTS_HOSTILE_PROCESS_H
#define TBC_TESTS_HOSTILE_PROCESS_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::test {

struct ProcessOutcome {
  /// The exit code, or minus the signal that ended it.
  int code = -1;
  std::string out, err;
  /// Processor time.
  double seconds = 0;
  /// The peak memory.
  int64_t peakBytes = 0;
};

/// Runs `arguments[0]` with the rest, in `folder`, without input, for at most 60 seconds.
/// Overwrites out.txt, err.txt and measured.txt there. Output goes to `outputPath` if given.
ProcessOutcome runProcess(const std::vector<std::string> &arguments, const std::string &folder,
                          const std::string &outputPath = "");

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_PROCESS_H

//===- PhaseLine.h - What a command does, on stderr ---------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_PHASELINE_H
#define TBC_TOOLS_TBC_RUN_PHASELINE_H

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tbc::cli {

/// Prints the current phase and the seconds since the first one on stderr, from a thread of its
/// own. On a terminal, after one second: one line, rewritten, cut to the width of the terminal, and
/// removed at the end. Elsewhere: permanent lines after 5, 15, 35, 75 .. seconds, so the log of a
/// batch job shows progress. Example: "tbc: waiting for rank 1 (5 s)".
class PhaseLine {
public:
  explicit PhaseLine(const std::string &phase);
  ~PhaseLine() { finish(); }
  PhaseLine(const PhaseLine &) = delete;
  PhaseLine &operator=(const PhaseLine &) = delete;

  void setPhase(const std::string &phase);
  /// Removes the line and ends the thread. Call before any other output of this process on a line
  /// that stays, and before fork().
  void finish();

private:
  void rewriteLine();
  void addLines();

  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  bool done = false;
  std::thread thread;
};

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_PHASELINE_H

//===- Progress.h - What a command is at, on stderr ----------------------------===//

#ifndef TBC_TOOLS_TBC_PROGRESS_H
#define TBC_TOOLS_TBC_PROGRESS_H

#include "planner/core/Search.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tbc::cli {

/// Says on stderr what is being done, and since when. On a terminal, once that has taken a second:
/// one line, which is rewritten, and gone at the end. Elsewhere lines that stay, after 5, 15, 35,
/// 75
/// .. seconds: the log of a batch job shows that the program is at work.
class Progress {
public:
  explicit Progress(const std::string &phase);
  ~Progress() { finish(); }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// From now on this is done.
  void setPhase(const std::string &phase);
  /// For the planner to say how far its search is.
  planner::Progress searching();
  /// Removes the line. Called before anything else is printed.
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

#endif // TBC_TOOLS_TBC_PROGRESS_H

//===- StepBar.h - How far a run is, on a terminal ----------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_STEPBAR_H
#define TBC_TOOLS_TBC_RUN_STEPBAR_H

#include <chrono>
#include <cstdint>
#include <string>

namespace tbc::cli {

/// Whether standard error is a terminal on which a line can be written again.
bool canRewriteALine();

/// "[=========>          ] 12/40, 35 s left", `width` characters between the brackets.
std::string barText(int64_t done, int64_t total, double secondsLeft, int width);

/// A line on stderr that is rewritten after each step; where stderr is no terminal, nothing.
class StepBar {
public:
  /// Steps `done` + 1 to `total` are to come.
  StepBar(int64_t done, int64_t total);
  void clear();
  void show(int64_t step);

private:
  const bool isOn;
  const int64_t first, total;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_STEPBAR_H

//===- StepBar.h - Progress bar of a run --------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_STEPBAR_H
#define TBC_TOOLS_TBC_RUN_STEPBAR_H

#include <chrono>
#include <cstdint>
#include <string>

namespace tbc::cli {

/// Returns the bar's text, with `width` characters between the brackets. Example: "[=========>
/// ] 12/40, 35 s left".
std::string barText(int64_t done, int64_t total, double secondsLeft, int width);

/// A line on stderr, rewritten after each step and never wider than the terminal; silent if stderr
/// is not a terminal.
class StepBar {
public:
  /// Starts the bar before step `done` + 1 of `total`.
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

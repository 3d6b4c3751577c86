//===- StepBar.cpp - Progress bar of a run ------------------------------------===//

#include "tools/tbc-run/StepBar.h"
#include "runtime/launch/Say.h"
#include "tools/tbc-run/Terminal.h"

#include <algorithm>
#include <cstdio>

namespace tbc::cli {

static std::string duration(double seconds) {
  char text[32];
  if (seconds < 120)
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  else if (seconds < 7200)
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  else
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  return text;
}

std::string barText(int64_t done, int64_t total, double secondsLeft, int width) {
  int filled = int(double(width) * double(done) / double(std::max<int64_t>(1, total)));
  std::string bar(size_t(filled), '=');
  if (filled < width)
    bar += '>';
  bar.resize(size_t(width), ' ');
  return "[" + bar + "] " + std::to_string(done) + "/" + std::to_string(total) + ", " +
         duration(secondsLeft) + " left";
}

StepBar::StepBar(int64_t done, int64_t total)
    : isOn(launch::canRewriteALine()), first(done), total(total) {}

void StepBar::clear() {
  if (!isOn)
    return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void StepBar::show(int64_t step) {
  if (!isOn)
    return;
  std::chrono::duration<double> since = std::chrono::steady_clock::now() - start;
  double each = since.count() / double(std::max<int64_t>(1, step - first));
  // A line that wraps could not be rewritten.
  constexpr int usual = 30, least = 5;
  const int columns = errorColumns() - 1;
  auto text = [&](int width) { return barText(step, total, each * double(total - step), width); };
  const int excess = int(text(usual).size()) - columns;
  const std::string bar = text(std::clamp(usual - excess, least, usual));
  std::fputs(("\r" + firstColumns(bar, columns) + "\033[K").c_str(), stderr);
  std::fflush(stderr);
}

} // namespace tbc::cli

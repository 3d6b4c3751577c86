//===- Format.cpp - Numbers as text for people ----------------------------===//

#include "planner/support/Format.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tbc::planner {

std::string format(const char *pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string text(size_t(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string formatBytes(double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1000 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0)
    return format("%.0f B", bytes);
  const double size = std::abs(bytes);
  return format(size < 10 ? "%.2f %s" : size < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

std::string formatCount(double count) {
  static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
  int unit = 0;
  while (count >= 1000 && unit < 6) {
    count /= 1000;
    ++unit;
  }
  return format(count < 10 && unit > 0 ? "%.2f%s"
                : count < 100          ? "%.1f%s"
                                       : "%.0f%s",
                count, units[unit]);
}

std::string formatSeconds(double seconds) {
  if (seconds >= 1)
    return format(seconds < 10 ? "%.2f s" : "%.1f s", seconds);
  if (seconds >= 1e-3)
    return format(seconds < 1e-2  ? "%.2f ms"
                  : seconds < 0.1 ? "%.1f ms"
                                  : "%.0f ms",
                  seconds * 1e3);
  return format("%.1f us", seconds * 1e6);
}

std::string joined(const std::vector<std::string> &words, const char *between) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : between) + word;
  return text;
}

} // namespace tbc::planner

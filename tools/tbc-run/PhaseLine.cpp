//===- PhaseLine.cpp - What a command does, on stderr -------------------------===//

#include "tools/tbc-run/PhaseLine.h"
#include "runtime/launch/Say.h"
#include "tools/tbc-run/Terminal.h"

#include <chrono>
#include <cstdio>

namespace tbc::cli {

using Clock = std::chrono::steady_clock;

PhaseLine::PhaseLine(const std::string &phase) : text(phase) {
  const bool isTerminal = launch::canRewriteALine();
  thread = std::thread([this, isTerminal] { isTerminal ? rewriteLine() : addLines(); });
}

/// Returns `text` with the seconds since `start`. Example: "searching (7 s)".
static std::string withSeconds(const std::string &text, Clock::time_point start) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, " (%.0f s)",
                std::chrono::duration<double>(Clock::now() - start).count());
  return text + seconds;
}

void PhaseLine::addLines() {
  const Clock::time_point start = Clock::now();
  auto wait = std::chrono::seconds(5);
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, wait, [&] { return done; })) {
    launch::say(withSeconds(text, start));
    wait *= 2;
  }
}

void PhaseLine::rewriteLine() {
  const Clock::time_point start = Clock::now();
  auto wait = std::chrono::milliseconds(1000);
  bool shown = false;
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, wait, [&] { return done; })) {
    // A line that wraps could not be rewritten. The rest of the line is cleared, because the
    // previous text may have been longer.
    const std::string line = firstColumns(withSeconds(text, start), errorColumns() - 1);
    std::fputs(("\r" + line + "\033[K").c_str(), stderr);
    std::fflush(stderr);
    shown = true;
    wait = std::chrono::milliseconds(200);
  }
  if (shown) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

void PhaseLine::setPhase(const std::string &phase) {
  std::lock_guard<std::mutex> lock(mutex);
  text = phase;
}

void PhaseLine::finish() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

} // namespace tbc::cli

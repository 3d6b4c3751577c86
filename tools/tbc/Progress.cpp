//===- Progress.cpp - Progress messages on stderr ------------------------------===//

#include "tools/tbc/Progress.h"
#include "tools/tbc-run/StepBar.h"

#include <chrono>
#include <cstdio>
#include <utility>

namespace tbc::cli {

using Clock = std::chrono::steady_clock;

static PhaseSink &phaseSink() {
  static PhaseSink sink;
  return sink;
}

void setPhaseSink(PhaseSink sink) { phaseSink() = std::move(sink); }

/// Tells the sink of `phase`, if there is one.
static void tellSink(const std::string &phase) {
  if (phaseSink() && !phaseSink()(phase))
    throw StopRequested();
}

Progress::Progress(const std::string &phase) : text(phase) {
  tellSink(phase);
  if (phaseSink())
    return;
  const bool isTerminal = canRewriteALine();
  thread = std::thread([this, isTerminal] { isTerminal ? rewriteLine() : addLines(); });
}

void Progress::addLines() {
  const Clock::time_point start = Clock::now();
  auto wait = std::chrono::seconds(5);
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, wait, [&] { return done; })) {
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::fprintf(stderr, "tbc: %s (%.0f s)\n", text.c_str(), seconds);
    wait *= 2;
  }
}

void Progress::rewriteLine() {
  const Clock::time_point start = Clock::now();
  auto wait = std::chrono::milliseconds(1000);
  bool shown = false;
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, wait, [&] { return done; })) {
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    // Clears the rest of the line, because the previous text may have been longer.
    std::fprintf(stderr, "\r%s (%.0f s)\033[K", text.c_str(), seconds);
    std::fflush(stderr);
    shown = true;
    wait = std::chrono::milliseconds(200);
  }
  if (shown) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

void Progress::setPhase(const std::string &phase) {
  tellSink(phase);
  std::lock_guard<std::mutex> lock(mutex);
  text = phase;
}

planner::Progress Progress::searching() {
  setPhase("searching");
  return [this](int64_t at, int64_t total) {
    if (at % 16 == 0 || phaseSink())
      setPhase("searching: " + std::to_string(at) + " of " + std::to_string(total) +
               " configurations");
  };
}

void Progress::finish() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

} // namespace tbc::cli

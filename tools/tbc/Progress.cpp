//===- Progress.cpp - Progress messages on stderr ------------------------------===//

#include "tools/tbc/Progress.h"

#include <utility>

namespace tbc::cli {

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

Progress::Progress(const std::string &phase) {
  tellSink(phase);
  if (!phaseSink())
    line.emplace(phase);
}

void Progress::setPhase(const std::string &phase) {
  tellSink(phase);
  if (line)
    line->setPhase(phase);
}

planner::Progress Progress::searching() {
  setPhase("searching");
  return [this](int64_t at, int64_t total) {
    if (at % 16 == 0 || phaseSink())
      setPhase("searching: " + std::to_string(at) + " of " + std::to_string(total) +
               " configurations");
  };
}

void Progress::finish() { line.reset(); }

} // namespace tbc::cli

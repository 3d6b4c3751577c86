//===- Progress.h - Progress messages on stderr --------------------------------===//

#ifndef TBC_TOOLS_TBC_PROGRESS_H
#define TBC_TOOLS_TBC_PROGRESS_H

#include "planner/search/Search.h"
#include "tools/tbc-run/PhaseLine.h"

#include <functional>
#include <optional>
#include <string>

namespace tbc::cli {

/// Ends a command from within setPhase(). Not an error: whoever set the sink catches it.
struct StopRequested {};

/// Receives each phase; returns whether the command shall go on.
using PhaseSink = std::function<bool(const std::string &phase)>;

/// Sends the phases of later Progress objects to `sink` instead of stderr; an empty one restores
/// stderr. A sink that returns false ends the command at its next phase or search step.
void setPhaseSink(PhaseSink sink);

/// Prints the current phase and its duration on stderr (PhaseLine), or tells the sink.
class Progress {
public:
  explicit Progress(const std::string &phase);
  ~Progress() { finish(); }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Starts a new phase. Throws StopRequested if the sink says so.
  void setPhase(const std::string &phase);
  /// Returns a callback for the planner's search progress.
  planner::Progress searching();
  /// Removes the line. Call before any other output.
  void finish();

private:
  std::optional<PhaseLine> line; // without a sink
};

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_PROGRESS_H

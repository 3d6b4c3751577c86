//===- StepOutput.h - Outputs of a run's step reports -------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_STEPOUTPUT_H
#define TBC_TOOLS_TBC_RUN_STEPOUTPUT_H

#include "runtime/train/StepLog.h"
#include "tools/tbc-run/PhaseLine.h"
#include "tools/tbc-run/StepBar.h"

#include <optional>

namespace tbc::cli {

/// The outputs of rank 0: lines on stdout, as text or JSON; a log of JSON lines, an event file, and
/// a bar on a terminal. Before the first step `phase` says what the rank does.
class StepOutput {
public:
  StepOutput(const train::TrainOptions &options, bool hasTokens, bool printsJson, PhaseLine &phase)
      : options(options), hasTokens(hasTokens), printsJson(printsJson), phase(phase) {}

  /// Opens the files of a run that continues after step `done`. Errors: Other, naming the flag.
  Status begin(int64_t done, int64_t steps);
  void report(const train::StepReport &report);
  void report(const train::EvaluationReport &report);
  /// Removes the phase and the bar, for other output.
  void clear();
  /// Whether a file could not be written, as was said then. The run ends by that.
  bool hasFailed() const { return !full.empty(); }
  /// Clears, too. Errors: Other, a file could not be written completely.
  Status end();

private:
  void fail(const std::string &where, int64_t step);
  void put(int64_t step, const std::string &line, const std::string &json,
           const std::vector<train::Scalar> &scalars);

  const train::TrainOptions &options;
  const bool hasTokens, printsJson;
  PhaseLine &phase;
  int64_t steps = 0;
  train::JsonLog log;
  train::EventFile events;
  std::optional<StepBar> bar;
  std::string full; // flag of the file that could not be written
};

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_STEPOUTPUT_H

//===- SkippedSteps.h - Steps whose update is left out ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_SKIPPEDSTEPS_H
#define TBC_RUNTIME_TRAIN_SKIPPEDSTEPS_H

#include "runtime/exec/Observer.h"

#include <functional>
#include <string>

namespace tbc::train {

/// Notices steps that a Program skips by itself because a scaled gradient overflows, and ends a run
/// that skips too many in a row. The loss of such a step may be finite.
class SkippedSteps : public runtime::Observer {
public:
  explicit SkippedSteps(const program::Program &program);

  /// Returns whether the Program scales its loss, and so skips steps by itself.
  bool scalesLoss() const { return isScaled; }
  void beginStep() { isOverflowing = false; }
  /// Returns whether a gradient that this rank counts is not finite in this step.
  bool overflows() const { return isOverflowing; }

  Status executed(const runtime::Executed &executed) override;
  bool looksAtOnce() const override { return false; }
  bool looksAt(schedule::Action::Kind kind, const program::Instruction &instruction) const override;

  /// Ends a run that no longer learns: its loss is not finite and the step is not skipped, or 10
  /// steps in a row were skipped. A dynamic loss scale may fall in 100 of them while the loss is
  /// finite. `cause` returns a sentence about the first NaN, or "". `lastSaved`: step of the last
  /// checkpoint, or less than 1. All ranks have the same arguments.
  Status check(bool isSkipped, bool isFinite, const std::function<std::string()> &cause,
               int64_t lastSaved);

private:
  bool isScaled = false, isDynamic = false, isOverflowing = false;
  int64_t numInARow = 0;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_SKIPPEDSTEPS_H

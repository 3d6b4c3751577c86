//===- StepLog.h - What a run says about its steps -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_STEPLOG_H
#define TBC_RUNTIME_TRAIN_STEPLOG_H

#include "runtime/train/Trainer.h"

#include <cstdio>

namespace tbc::train {

/// "step 3  loss 4.8521  lr 0.001  0.123 s  4166 tokens/s".
std::string lineOf(const StepReport &report, int64_t steps, bool hasTokens);

/// {"step":3,"loss":4.852…,"lr":…,"seconds":…,"tokens_per_second":…,"epoch":…}: the loss in as many
/// digits as it needs to come back the same, null where it is no number; "loss_residue" in
/// residues.
std::string jsonOf(const StepReport &report, bool hasTokens);

/// A file of such lines, each complete when `write` returns.
class JsonLog {
public:
  /// Begins anew, or keeps the lines of the steps up to `done` of a log that is there: what a run
  /// that was killed wrote after its last checkpoint is written again. Errors: Other, with path and
  /// reason.
  static Result<JsonLog> open(const std::string &path, int64_t done);
  JsonLog() = default;
  JsonLog(JsonLog &&o) noexcept : file(o.file) { o.file = nullptr; }
  JsonLog &operator=(JsonLog &&o) noexcept {
    std::swap(file, o.file);
    return *this;
  }
  ~JsonLog();
  /// False if it could not be written (a full disk).
  bool write(const std::string &line);
  explicit operator bool() const { return file != nullptr; }

private:
  std::FILE *file = nullptr;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_STEPLOG_H

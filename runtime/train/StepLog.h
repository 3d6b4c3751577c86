//===- StepLog.h - What a run says about its steps -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_STEPLOG_H
#define TBC_RUNTIME_TRAIN_STEPLOG_H

#include "runtime/train/EventFile.h"
#include "runtime/train/Trainer.h"

#include <cstdio>

namespace tbc::train {

/// "step 3/10  loss 4.852100  lr 0.001  gradient 1.2  0.123 s  4166 tokens/s  MFU 1.2 %  process
/// 120.0 MiB, of it arena 80.0 MiB".
std::string lineOf(const StepReport &report, int64_t steps, bool hasTokens);

/// {"step":3,"loss":4.852…,"lr":…,"epoch":0,"gradient_norm":…,"seconds":…,"tokens_per_second":…,
/// "mfu":…,"resident_bytes":…,"planned_bytes":…}: numbers in as many digits as they need to come
/// back the same, null where they are none; "loss_residue" in residues. What comes before "seconds"
/// depends on nothing but the Program, the data and the flags.
std::string jsonOf(const StepReport &report, bool hasTokens);

/// The same numbers for TensorBoard; no loss in residues.
std::vector<Scalar> scalarsOf(const StepReport &report, bool hasTokens);

/// The same of an evaluation: "step 3/10  evaluation loss 4.9  8 batches  0.5 s",
/// {"step":3,"evaluation_loss":4.9,"batches":8,"seconds":0.5}, "evaluation/loss".
std::string lineOf(const EvaluationReport &report, int64_t steps);
std::string jsonOf(const EvaluationReport &report);
std::vector<Scalar> scalarsOf(const EvaluationReport &report);

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

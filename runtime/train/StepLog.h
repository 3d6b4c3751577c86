//===- StepLog.h - The log of a run's steps -------------------------------===//
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

/// Example: "step 3/10  loss 4.852100  lr 0.001  gradient 1.2  0.123 s  4166 tokens/s  MFU 1.2 %
/// process 120.0 MiB, of it arena 80.0 MiB".
std::string lineOf(const StepReport &report, int64_t steps, bool hasTokens);

/// Example:
/// {"step":3,"loss":4.852…,"lr":…,"epoch":0,"gradient_norm":…,"seconds":…,"tokens_per_second":…,
/// "mfu":…,"resident_bytes":…,"planned_bytes":…,"format":"tbc-run","version":1}.
///
/// Numbers have enough digits to be read back exactly; a missing number is null. In residues
/// "loss_residue" stands for "loss". The fields before "seconds" depend only on the Program, the
/// data and the flags.
std::string jsonOf(const StepReport &report, bool hasTokens);

/// The same numbers for TensorBoard; in residues without the loss.
std::vector<Scalar> scalarsOf(const StepReport &report, bool hasTokens);

/// The same for an evaluation: "step 3/10  evaluation loss 4.9  8 batches  0.5 s",
/// {"step":3,"evaluation_loss":4.9,"batches":8,"seconds":0.5,"format":"tbc-run","version":1},
/// "evaluation/loss".
std::string lineOf(const EvaluationReport &report, int64_t steps);
std::string jsonOf(const EvaluationReport &report);
std::vector<Scalar> scalarsOf(const EvaluationReport &report);

/// Whether a run on this machine writes the log at `path` now. Two runs would lose each other's
/// lines.
bool isLogInUse(const std::string &path);

/// A file of such JSON lines, each complete when `write` returns.
class JsonLog {
public:
  /// Creates the file, or keeps the lines of an existing log up to step `done`. If a run was killed
  /// after its last checkpoint, the later lines are written again. The file is locked until this
  /// object ends. Errors: Other, with path and reason.
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

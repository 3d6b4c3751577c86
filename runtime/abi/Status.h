//===- Status.h - Errors with a code and a sentence ------------------------===//
//
// Part of tbc. Plain C++: used by the runtime, the planner core and every pure library.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_STATUS_H
#define TBC_RUNTIME_ABI_STATUS_H

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace tbc {

/// The exit code of the process that reports an error. The numbers are the documented interface of
/// the command line (docs/design.md, section 7).
enum class ErrorCode : int {
  Other = 1,
  /// Bad flag or malformed input of ours: plan, cluster file, mesh, Program.
  Usage = 2,
  ModelRejected = 3,
  NoFeasiblePlan = 4,
  VerificationFailed = 5,
  RankFailed = 6,
  HangDetected = 7,
  StoppedOnRequest = 8,
  CheckpointUnreadable = 9,
  DifferencesFound = 10,
  /// The loss of a training step, or a tensor to be saved, is NaN or infinite.
  NotFinite = 11,
};

/// An error. The message names the culprit, the cause and the remedy.
struct Error {
  ErrorCode code = ErrorCode::Other;
  std::string message;
};

/// Success, or an Error. Converts to true on *success*.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : failed(true), err(std::move(error)) {}
  static Status ok() { return {}; }

  explicit operator bool() const { return !failed; }
  const Error &error() const {
    assert(failed && "no error in a successful status");
    return err;
  }

private:
  bool failed = false;
  Error err;
};

/// A value, or an Error. Converts to true on *success*.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : content(std::move(value)) {}
  Result(Error error) : content(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(content); }
  T &operator*() { return std::get<T>(content); }
  const T &operator*() const { return std::get<T>(content); }
  T *operator->() { return &std::get<T>(content); }
  const T *operator->() const { return &std::get<T>(content); }
  const Error &error() const { return std::get<Error>(content); }

private:
  std::variant<T, Error> content;
};

} // namespace tbc

#endif // TBC_RUNTIME_ABI_STATUS_H

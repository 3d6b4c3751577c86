//===- Store.h - Where ranks find each other -------------------------------===//
//
// Part of tbc. Plain C++. Implemented by runtime/launch; a backend leaves its addresses here.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_STORE_H
#define TBC_RUNTIME_COMM_STORE_H

#include "runtime/abi/Status.h"

#include <chrono>
#include <optional>
#include <string>

namespace tbc::comm {

/// Small values by key that every rank of a job sees. A key is set once.
class Store {
public:
  virtual ~Store() = default;

  /// Sets `key` unless it is set already; returns its value, which is `value` for whoever was
  /// first. Errors: the store cannot be reached; the job was given up (abort).
  virtual Result<std::string> claim(const std::string &key, const std::string &value) = 0;

  /// The value of `key`, once somebody has set it. Errors: as for claim; HangDetected, naming the
  /// key, if that takes longer than `timeout`.
  virtual Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) = 0;

  /// Ends what every rank waits for, now and later, with this error. The first one counts.
  virtual void abort(const Error &error) = 0;

  /// The error with which the job was given up, as far as this process has heard of it.
  virtual std::optional<Error> givenUp() { return std::nullopt; }
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_STORE_H

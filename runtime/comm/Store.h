//===- Store.h - The key-value store of a job ------------------------------===//
//
// Part of tbc. Plain C++. Implemented by runtime/launch; backends publish their addresses here.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_STORE_H
#define TBC_RUNTIME_COMM_STORE_H

#include "runtime/abi/Status.h"

#include <chrono>
#include <optional>
#include <string>

namespace tbc::comm {

/// Small values by key, visible to every rank of a job. A key is set once.
class Store {
public:
  virtual ~Store() = default;

  /// Sets `key` unless it is set already, and returns its value: `value` for the first caller.
  /// Errors: the store cannot be reached; the job was given up (`abort`).
  virtual Result<std::string> claim(const std::string &key, const std::string &value) = 0;

  /// Returns the value of `key` as soon as it is set. Errors: as for `claim`; HangDetected, naming
  /// the key, after `timeout`.
  virtual Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) = 0;

  /// Ends all current and later waits of every rank with this error. The first call counts.
  virtual void abort(const Error &error) = 0;

  /// Returns the error with which the job was given up, as far as this process knows it.
  virtual std::optional<Error> givenUp() { return std::nullopt; }
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_STORE_H

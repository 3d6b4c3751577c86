//===- SharedStore.h - A thread-safe store -----------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_SHAREDSTORE_H
#define TBC_RUNTIME_COMM_SHAREDSTORE_H

#include "runtime/comm/Store.h"

#include <mutex>

namespace tbc::comm {

/// A store for several threads of a rank. A `get` waits in turns of 100 ms, so `abort` on another
/// thread waits for at most one turn.
class SharedStore : public Store {
public:
  /// `store` outlives this, and is used only through it.
  explicit SharedStore(Store &store) : store(store) {}

  Result<std::string> claim(const std::string &key, const std::string &value) override;
  Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) override;
  void abort(const Error &error) override;
  std::optional<Error> givenUp() override;

private:
  std::mutex mutex;
  Store &store;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_SHAREDSTORE_H

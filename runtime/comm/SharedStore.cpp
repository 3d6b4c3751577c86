//===- SharedStore.cpp - A thread-safe store ---------------------------------===//

#include "runtime/comm/SharedStore.h"

#include <algorithm>
#include <thread>

namespace tbc::comm {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Result<std::string> SharedStore::claim(const std::string &key, const std::string &value) {
  std::lock_guard<std::mutex> lock(mutex);
  return store.claim(key, value);
}

Result<std::string> SharedStore::get(const std::string &key, milliseconds timeout) {
  Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    constexpr milliseconds turn(100);
    auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    std::unique_lock<std::mutex> lock(mutex);
    Result<std::string> value = store.get(key, std::clamp(left, milliseconds(0), turn));
    bool isGivenUp = !value && store.givenUp();
    lock.unlock();
    if (value || isGivenUp || value.error().code != ErrorCode::HangDetected)
      return value;
    if (Clock::now() >= deadline)
      return Error{ErrorCode::HangDetected,
                   "waited " + std::to_string(timeout.count()) + " ms for \"" + key + "\""};
    std::this_thread::sleep_for(milliseconds(1)); // a mutex is not fair
  }
}

void SharedStore::abort(const Error &error) {
  std::lock_guard<std::mutex> lock(mutex);
  store.abort(error);
}

std::optional<Error> SharedStore::givenUp() {
  std::lock_guard<std::mutex> lock(mutex);
  return store.givenUp();
}

} // namespace tbc::comm

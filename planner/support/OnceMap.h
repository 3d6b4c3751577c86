//===- OnceMap.h - Values made at their first request ---------------------===//
//
// Plain C++. Caches shared by threads. A value must follow from its key alone, so the order of
// requests does not matter.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SUPPORT_ONCEMAP_H
#define TBC_PLANNER_SUPPORT_ONCEMAP_H

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace tbc::planner {

/// A value made by the first caller; concurrent callers wait. Making one may request others,
/// without cycles.
template <typename Value> class Once {
public:
  /// `make()` returns the value.
  template <typename Make> Value &get(Make &&make) {
    std::call_once(once, [&] { value.emplace(make()); });
    return *value;
  }

private:
  std::once_flag once;
  std::optional<Value> value;
};

/// The same by key. References to values stay valid.
template <typename Key, typename Value> class OnceMap {
public:
  template <typename Make> Value &get(const Key &key, Make &&make) {
    Once<Value> *entry;
    {
      std::lock_guard<std::mutex> lock(mutex);
      entry = &entries[key];
    }
    return entry->get(std::forward<Make>(make));
  }

private:
  std::mutex mutex;
  std::map<Key, Once<Value>> entries;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_ONCEMAP_H

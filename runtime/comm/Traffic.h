//===- Traffic.h - Portions in flight in a collective ----------------------===//
//
// Part of tbc. Plain C++. Internal to the algorithms of collectives.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_TRAFFIC_H
#define TBC_RUNTIME_COMM_TRAFFIC_H

#include "runtime/comm/Courses.h"

#include <vector>

namespace tbc::comm {

/// The portions of a call, with the number of requested ones.
class Traffic {
public:
  explicit Traffic(const Course &course)
      : course(course), sent(course.numRanks), received(course.numRanks) {}

  /// Returns the other indices, starting behind the own one, so that ranks begin with different
  /// peers. Example: index 1 of 4 gives {2, 3, 0}.
  std::vector<size_t> others() const {
    std::vector<size_t> list;
    for (size_t i = 1; i < course.numRanks; ++i)
      list.push_back((course.own + i) % course.numRanks);
    return list;
  }

  Status send(size_t index, const Runs &from) {
    if (from.empty())
      return Status::ok();
    ++sent[index];
    return course.courier.send(index, from);
  }
  Status receive(size_t index, const Runs &into) {
    if (into.empty())
      return Status::ok();
    ++received[index];
    return course.courier.receive(index, into);
  }
  int64_t numReceived(size_t index) const { return received[index]; }

  /// Waits until at most `left` portions of each index are in flight.
  Status waitUntilLeft(int64_t left) {
    for (size_t index : others()) {
      if (Status status = course.courier.waitReceived(index, received[index] - left); !status)
        return status;
      if (Status status = course.courier.waitSent(index, sent[index] - left); !status)
        return status;
    }
    return Status::ok();
  }

private:
  const Course course;
  std::vector<int64_t> sent, received;
};

inline int64_t numPortions(int64_t bytes, int64_t portionBytes) {
  return (bytes + portionBytes - 1) / portionBytes;
}

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_TRAFFIC_H

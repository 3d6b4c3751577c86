//===- RaceChecker.h - Finds unordered accesses ----------------------------===//
//
// Finds pairs of operations on the same bytes, at least one of them a write, that are unordered:
// neither happens before the other.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_RACECHECKER_H
#define TBC_TESTS_RUNTIME_CUDA_RACECHECKER_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::test {

/// A vector clock: how many operations of each lane (a stream) happen before some point. For an
/// operation of lane l, clock[l] is its own number, from 1.
class Clock {
public:
  int64_t of(int lane) const { return lane < int(numbers.size()) ? numbers[lane] : 0; }
  void tick(int lane);
  /// Includes everything that happens before `other`: the maximum per lane.
  /// Example: (3, 0) joined with (1, 2) is (3, 2).
  void join(const Clock &other);

private:
  std::vector<int64_t> numbers;
};

/// Checks operations, given in an order in which they were executed.
class RaceChecker {
public:
  /// An operation of `lane` touches bytes [begin, begin + bytes).
  void touch(int lane, const Clock &clock, const std::string &name, uint64_t begin, uint64_t bytes,
             bool isWrite);
  /// These bytes are freed. Later accesses there belong to another allocation.
  void forget(uint64_t begin, uint64_t bytes);

  /// Returns one sentence per race, with the names of both operations. Each pair of names appears
  /// once.
  const std::vector<std::string> &races() const { return found; }

private:
  struct Touch {
    int lane;
    int64_t number;
    std::string name;
    uint64_t begin, end;
    bool isWrite;
  };
  std::vector<Touch> touches;
  std::vector<std::string> found;
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_RACECHECKER_H

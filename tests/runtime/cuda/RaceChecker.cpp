//===- RaceChecker.cpp - Finds unordered accesses --------------------------===//

#include "tests/runtime/cuda/RaceChecker.h"

#include <algorithm>

namespace tbc::test {

void Clock::tick(int lane) {
  if (lane >= int(numbers.size()))
    numbers.resize(lane + 1, 0);
  ++numbers[lane];
}

void Clock::join(const Clock &other) {
  if (numbers.size() < other.numbers.size())
    numbers.resize(other.numbers.size(), 0);
  for (size_t lane = 0; lane < other.numbers.size(); ++lane)
    numbers[lane] = std::max(numbers[lane], other.numbers[lane]);
}

void RaceChecker::touch(int lane, const Clock &clock, const std::string &name, uint64_t begin,
                        uint64_t bytes, bool isWrite) {
  uint64_t end = begin + bytes;
  for (const Touch &earlier : touches) {
    bool isOrdered = clock.of(earlier.lane) >= earlier.number;
    if (earlier.end <= begin || end <= earlier.begin || !(earlier.isWrite || isWrite) || isOrdered)
      continue;
    std::string text = "race: " + name + (isWrite ? " writes" : " reads") + " what " +
                       earlier.name + (earlier.isWrite ? " writes" : " reads") +
                       ", and no event orders them";
    if (std::find(found.begin(), found.end(), text) == found.end())
      found.push_back(text);
  }
  // This write replaces the earlier touches it covers. An operation ordered after this write is
  // also ordered after them.
  if (isWrite)
    touches.erase(std::remove_if(touches.begin(), touches.end(),
                                 [&](const Touch &earlier) {
                                   return begin <= earlier.begin && earlier.end <= end &&
                                          clock.of(earlier.lane) >= earlier.number;
                                 }),
                  touches.end());
  touches.push_back({lane, clock.of(lane), name, begin, end, isWrite});
}

void RaceChecker::forget(uint64_t begin, uint64_t bytes) {
  touches.erase(std::remove_if(touches.begin(), touches.end(),
                               [&](const Touch &touch) {
                                 return begin <= touch.begin && touch.end <= begin + bytes;
                               }),
                touches.end());
}

} // namespace tbc::test

//===- Flight.cpp - The bytes a warp has in flight -------------------------===//

#include "tests/ptx/Flight.h"

#include <algorithm>

namespace tbc::ptx {

static constexpr int placeBytes = 4; // smallest distance of places: a predicate's

Flight::Flight(int fileBytes) : groups(size_t(fileBytes) / placeBytes + 1) {}

uint32_t &Flight::groupOf(int place) { return groups[size_t(place) / placeBytes]; }

void Flight::step(const Instruction &i) {
  uint32_t newest = i.guard >= 0 ? groupOf(i.guard) : 0;
  for (int place : i.reads)
    newest = std::max(newest, groupOf(place));
  bool needsGroup = newest == current;
  bool isBranch = i.control != Control::None;
  bool isLast = isBranch ? needsGroup || isUsed : needsGroup && i.traffic != Traffic::None;
  if (isLast)
    endGroup();
  else if (needsGroup)
    isUsed = true;
  for (int place : i.writes)
    groupOf(place) = i.traffic == Traffic::Load ? current : newest;
}

void Flight::endGroup() {
  sum += double(groupBytes);
  squares += double(groupBytes) * double(groupBytes);
  groupBytes = 0;
  isUsed = false;
  ++current;
}

void Flight::addTo(Counts &counts) {
  endGroup();
  counts.flightSum += sum;
  counts.flightSquares += squares;
}

} // namespace tbc::ptx

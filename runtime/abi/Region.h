//===- Region.h - The operands and results of a compiled region -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_REGION_H
#define TBC_RUNTIME_ABI_REGION_H

#include "runtime/abi/Program.h"

namespace tbc::program {

struct RegionValues {
  /// Values read by the region and defined outside, in the order of the first read.
  std::vector<ValueId> operands;
  /// Values defined by the region that are read outside of it or are results of the block, in the
  /// order of definition.
  std::vector<ValueId> results;
};

/// Returns the operands and results of a kernel that does the region. A kernel does the whole
/// region at once. So the executor writes the block results whose times (`resultTimes`) lie in the
/// region after the kernel has ended.
RegionValues regionValues(const Block &block, const Region &region);

/// Returns the values that are made and read only inside of the region.
std::vector<ValueId> valuesInside(const Block &block, const Region &region);

/// Returns, by instruction, its region's first and last instruction; without a region, itself
/// twice.
std::vector<std::pair<int, int>> regionSpans(const Block &block);

/// Two values of a region that share bytes in the memory plan.
struct SharedPlace {
  ValueId result = 0;
  ValueId other = 0;
  /// Whether both have exactly the same bytes and `other` is an operand. The kernel may then work
  /// in place.
  bool isSame = false;
};

/// Returns the results of a region that share bytes with an operand, another result, or a value
/// that the block writes to a slot while the region runs. Such sharing is valid if instructions run
/// one after the other, because a dead value may be overwritten. A kernel that does all at once
/// must be compiled for it, or must not be used. Empty without a memory plan.
std::vector<SharedPlace> sharedPlaces(const Stage &stage, const Block &block, const Region &region);

/// Whether two values overlap in bytes, and whether they have exactly the same bytes. The stage
/// must have a memory plan.
bool shareBytes(const Stage &stage, ValueId a, ValueId b);
bool areAtOnePlace(const Stage &stage, ValueId a, ValueId b);
/// Whether a value overlaps the bytes of a slot.
bool sharesBytesOfSlot(const Stage &stage, ValueId value, int slot);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_REGION_H

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
  /// Read by the region and defined outside, in the order of the first read.
  std::vector<ValueId> operands;
  /// Defined by the region and read outside of it, or results of the block, in the order of
  /// definition.
  std::vector<ValueId> results;
};

/// What a kernel that does the region reads and writes. A kernel does all at once, so an executor
/// that uses it writes those results of the block whose times (resultTimes) lie in the region when
/// the kernel has ended.
RegionValues regionValues(const Block &block, const Region &region);

/// Two values of a region that share bytes in the memory plan.
struct SharedPlace {
  ValueId result = 0;
  ValueId other = 0;
  /// Whether they lie at exactly the same bytes and `other` is an operand: the kernel may then do
  /// its result in place.
  bool isSame = false;
};

/// The results of a region that share bytes with an operand, another result, or a value that the
/// block writes to a slot while the region runs, and with which. Valid execution of one instruction
/// after the other allows that, since what is dead gives way; a kernel that does all of them at
/// once has to be made for it, or must not be used. Empty without a memory plan.
std::vector<SharedPlace> sharedPlaces(const Stage &stage, const Block &block, const Region &region);

/// Of a stage with a memory plan: whether two values lie at bytes in common, or at the same bytes.
bool shareBytes(const Stage &stage, ValueId a, ValueId b);
bool areAtOnePlace(const Stage &stage, ValueId a, ValueId b);
/// Whether a value lies at bytes of a slot.
bool sharesBytesOfSlot(const Stage &stage, ValueId value, int slot);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_REGION_H

//===- MemoryCheck.h - Predicted, planned and real memory of ranks ----------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_MEMORYCHECK_H
#define TBC_RUNTIME_TRAIN_MEMORYCHECK_H

#include "runtime/comm/Communicator.h"
#include "runtime/train/Manifest.h"

#include <string>
#include <vector>

namespace tbc::train {

/// One rank's memory, in bytes.
struct RankMemoryUse {
  int64_t stage = 0;
  PredictedMemory predicted; // 0 where nobody predicted it
  int64_t planned = 0;       // the arena of its memory plan
  /// The most that the process had resident, or, of a GPU, what all processes on it have taken.
  int64_t real = 0;
  bool isOfDevice = false; // what `real` is of
  /// Whether it may be the device of the plan, so that `real` may be compared with what is
  /// predicted in all.
  bool isAsPlanned = true;
};

/// The most that this process ever had resident; 0 where the system does not say.
int64_t peakResidentBytes();

/// What all ranks have to say, in their order. All ranks call it.
Result<std::vector<RankMemoryUse>> gatherMemory(comm::Communicator &communicator,
                                                const RankMemoryUse &mine);

/// A table of it with a line per rank, and what it says.
std::string memoryTable(const std::vector<RankMemoryUse> &ranks);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_MEMORYCHECK_H

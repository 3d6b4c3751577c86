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
  PredictedMemory predicted; // 0 without a prediction
  int64_t planned = 0;       // the arena of its memory plan
  /// The peak resident bytes of the process or, on a GPU, the bytes taken by all processes on it.
  int64_t real = 0;
  bool isOfDevice = false; // whether `real` is device memory
  /// Whether the device may be that of the plan. Only then is `real` compared with the predicted
  /// total.
  bool isAsPlanned = true;
};

/// The peak resident bytes of this process; 0 if the system does not report it.
int64_t peakResidentBytes();

/// Gathers the memory of all ranks, in rank order. All ranks call it.
Result<std::vector<RankMemoryUse>> gatherMemory(comm::Communicator &communicator,
                                                const RankMemoryUse &mine);

/// Returns a table with a line per rank, and a summary.
std::string memoryTable(const std::vector<RankMemoryUse> &ranks);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_MEMORYCHECK_H

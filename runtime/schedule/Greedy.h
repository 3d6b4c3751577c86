//===- Greedy.h - A schedule for any placement of chunks -------------------===//
//
// Part of tbc. Internal to runtime/schedule.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_SCHEDULE_GREEDY_H
#define TBC_RUNTIME_SCHEDULE_GREEDY_H

#include "runtime/schedule/Schedule.h"

namespace tbc::schedule {

/// List scheduling in ticks. Forward, backward and weight part (wgrad) take one tick each; a
/// backward that is not split takes two. At each tick, a free stage runs one of the actions with
/// all inputs there:
///
/// (1) a backward before a forward before a weight part;
/// (2) then the chunk furthest along;
/// (3) then the lowest micro-batch.
///
/// Limits: a stage has at most numChunks micro-batches in flight, like a 1F1B pipeline of that many
/// stages. Once that many weight parts wait, one of them runs first.
///
/// A micro-batch in flight is never held back, so every action gets its turn. The order cannot
/// deadlock, because everything ran in it once with its inputs there.
std::vector<std::vector<Action>> greedySchedules(const Pipeline &pipeline, int64_t numMicroBatches,
                                                 bool splitsBackward);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_GREEDY_H

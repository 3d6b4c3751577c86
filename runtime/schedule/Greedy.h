//===- Greedy.h - A schedule for any placement of chunks -------------------===//
//
// Part of tbc. Internal to runtime/schedule.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_SCHEDULE_GREEDY_H
#define TBC_RUNTIME_SCHEDULE_GREEDY_H

#include "runtime/schedule/Schedule.h"

namespace tbc::schedule {

/// List scheduling with every forward, backward and weight part one tick long (a backward that is
/// not parted two): at each tick a free stage runs, of what can run, a backward before a forward
/// before a weight part; among those the chunk furthest along, then the lowest micro-batch. A stage
/// has at most numChunks micro-batches under way, as a 1F1B pipeline of so many stages would, and
/// runs a weight part first once as many of them wait.
///
/// What is under way is never held back, so every action gets its turn; and an order in which
/// everything ran once, its inputs there, cannot deadlock.
std::vector<std::vector<Action>> greedySchedules(const Pipeline &pipeline, int64_t numMicroBatches,
                                                 bool splitsBackward);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_GREEDY_H

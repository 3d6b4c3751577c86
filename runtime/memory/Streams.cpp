//===- Streams.cpp - The order of instructions on concurrent streams ------===//

#include "runtime/memory/Streams.h"

#include <algorithm>

namespace tbc::memory {

StreamOrder::StreamOrder(const std::vector<StreamStep> &steps) {
  int n = int(steps.size());
  for (const StreamStep &step : steps)
    numStreams = std::max(numStreams, step.stream + 1);
  std::vector<std::vector<int>> ofStream(numStreams);
  known.assign(size_t(n) * size_t(numStreams), -1);
  auto at = [&](int step, int stream) -> int & {
    return known[size_t(step) * size_t(numStreams) + size_t(stream)];
  };
  for (int i = 0; i < n; ++i) {
    int own = steps[i].stream;
    streamOf.push_back(own);
    auto follow = [&](int before) {
      for (int s = 0; s < numStreams; ++s)
        at(i, s) = std::max(at(i, s), at(before, s));
      at(i, steps[before].stream) = std::max(at(i, steps[before].stream), before);
    };
    if (!ofStream[own].empty())
      follow(ofStream[own].back());
    for (int before : steps[i].waits)
      follow(before);
    ofStream[own].push_back(i);
  }
  // Along a stream, the set of steps known to be done only grows.
  settledAt.resize(n);
  for (int i = 0; i < n; ++i) {
    settledAt[i] = i + 1;
    for (int s = 0; s < numStreams; ++s) {
      if (s == streamOf[i])
        continue;
      const std::vector<int> &list = ofStream[s];
      auto after = std::partition_point(list.begin(), list.end(),
                                        [&](int step) { return step <= i || !isBefore(i, step); });
      if (after != list.begin() && *std::prev(after) > i)
        settledAt[i] = std::max(settledAt[i], *std::prev(after) + 1);
    }
  }
}

bool StreamOrder::isBefore(int first, int second) const {
  return known[size_t(second) * size_t(numStreams) + size_t(streamOf[first])] >= first;
}

std::vector<StreamStep> overlapCommunication(const std::vector<StreamUse> &uses) {
  std::vector<bool> isRead(uses.size(), false);
  for (const StreamUse &use : uses)
    for (int source : use.sources)
      isRead[source] = true;
  std::vector<StreamStep> steps;
  int lastComputed = -1, computedSeen = -1;     // by communication
  int lastUnread = -1, due = -1, commSeen = -1; // by computation
  for (int i = 0; i < int(uses.size()); ++i) {
    StreamStep step;
    if (uses[i].isCommunication) {
      step.stream = 1;
      if (lastComputed > computedSeen)
        step.waits.push_back(computedSeen = lastComputed);
      if (!isRead[i]) {
        due = lastUnread;
        lastUnread = i;
      }
    } else {
      int needed = due;
      for (int source : uses[i].sources)
        if (uses[source].isCommunication)
          needed = std::max(needed, source);
      if (needed > commSeen)
        step.waits.push_back(commSeen = needed);
      lastComputed = i;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

} // namespace tbc::memory

//===- Collective.cpp - Names and message sizes ----------------------------===//

#include "planner/reshard/Collective.h"

namespace tbc::reshard {

const char *name(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllReduce:
    return "all_reduce";
  case CollectiveKind::AllGather:
    return "all_gather";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  case CollectiveKind::AllToAll:
    return "all_to_all";
  case CollectiveKind::ShardSlice:
    return "shard_slice";
  case CollectiveKind::Send:
    return "send";
  case CollectiveKind::Permute:
    return "permute";
  }
  return "unknown";
}

int64_t numParticipants(const Collective &collective) {
  return collective.stages.empty() ? groupSize(collective.axes)
                                   : static_cast<int64_t>(collective.stages.size());
}

double bytesOnWire(const Collective &collective) {
  double n = static_cast<double>(numParticipants(collective));
  double bytes = static_cast<double>(collective.bytes);
  switch (collective.kind) {
  case CollectiveKind::AllReduce:
    return 2 * (n - 1) / n * bytes;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::AllToAll:
    return (n - 1) / n * bytes;
  case CollectiveKind::Send:
  case CollectiveKind::Permute:
    return bytes;
  case CollectiveKind::ShardSlice:
    return 0;
  }
  return 0;
}

} // namespace tbc::reshard

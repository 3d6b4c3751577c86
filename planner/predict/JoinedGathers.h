//===- JoinedGathers.h - Gathers of parameters that an executor joins ------===//

#ifndef TBC_PLANNER_PREDICT_JOINEDGATHERS_H
#define TBC_PLANNER_PREDICT_JOINEDGATHERS_H

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"

#include <map>
#include <tuple>

namespace tbc::planner {

/// Gathers of stored parameters that an executor joins: up to `joinedGathers` of a block and kind.
class JoinedGathers {
public:
  JoinedGathers(const StageDevices &devices, const StageNetworks &networks)
      : devices(devices), networks(networks) {}

  /// Returns the additional seconds of `step`, the gather of `reshard`, in its collective. The plan
  /// itself joins gathers in buckets (`inBucket`).
  double add(const reshard::Reshard &reshard, const reshard::Collective &step, bool inBucket) {
    const Cluster &cluster = devices.of(reshard.stage);
    const int64_t most = inBucket ? 1 : cluster.executor.joinedGathers;
    if (step.kind != reshard::CollectiveKind::AllGather)
      return networks.seconds(step, reshard.stage);
    auto added = [&](double count) {
      return executorSeconds(cluster, step.kind, count, double(reshard::groupSize(step.axes)),
                             double(step.bytes));
    };
    if (most <= 1)
      return networks.seconds(step, reshard.stage) + added(1);
    Open &here = open[{reshard.chunk, reshard.phase, step.axes}];
    const bool isFirst = here.count++ % most == 0;
    if (isFirst)
      here.bytes = 0;
    reshard::Collective joined = step;
    joined.bytes = here.bytes;
    const double before = here.bytes > 0 ? networks.seconds(joined, reshard.stage) : 0;
    joined.bytes = here.bytes += step.bytes;
    return networks.seconds(joined, reshard.stage) - before + added(isFirst ? 1 : 0);
  }

private:
  struct Open {
    int64_t count = 0, bytes = 0;
  };
  const StageDevices &devices;
  const StageNetworks &networks;
  std::map<std::tuple<int, reshard::Phase, std::vector<reshard::AxisRef>>, Open> open;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_JOINEDGATHERS_H

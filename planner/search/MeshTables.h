//===- MeshTables.h - Devices and networks shared by candidates -----------===//

#ifndef TBC_PLANNER_SEARCH_MESHTABLES_H
#define TBC_PLANNER_SEARCH_MESHTABLES_H

#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/search/BatchSums.h"
#include "planner/search/SearchProblem.h"
#include "planner/support/OnceMap.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace tbc::planner {

/// The devices of the stages of one mesh, and their networks.
struct MeshStages {
  StageDevices devices;
  std::unique_ptr<StageNetworks> networks;
};

/// Seconds to complete the batch sums (BatchSums.h) over the data ranks in a micro-batch: prefix
/// sums over forward ops [0, i), and over their backward.
struct BatchSumSeconds {
  std::vector<double> forward, backward;
  double total() const { return forward.back() + backward.back(); }
};

/// Memo tables by mesh. A value depends only on its key and on the problem. Thread-safe.
class MeshTables {
public:
  explicit MeshTables(const SearchProblem &problem) : problem(problem) {}

  const MeshStages &stagesFor(const MeshShape &mesh) const;
  /// Returns the homogeneous cluster of stage `stage`.
  const Cluster &clusterOf(const MeshShape &mesh, int stage) const;
  /// Returns the network with all devices as good as the best of a mixed cluster, for bounds.
  const NetworkCost &networkFor(const MeshShape &mesh) const;
  /// Returns the batch sums priced on networkFor(mesh), for bounds.
  const BatchSumSeconds &batchSumSeconds(const MeshShape &mesh) const;
  /// The same, priced on the devices of stage `stage`.
  const BatchSumSeconds &batchSumSeconds(const MeshShape &mesh, int stage) const;

private:
  const BatchSumSeconds &batchSumSeconds(const MeshShape &mesh, const NetworkCost &network,
                                         const StageKind &kind) const;

  const SearchProblem &problem;
  mutable OnceMap<std::array<int64_t, 6>, std::unique_ptr<MeshStages>> stages;
  mutable OnceMap<std::array<int64_t, 6>, std::unique_ptr<NetworkCost>> networks;
  mutable Once<std::vector<BatchSum>> sumsOverBatch;
  mutable OnceMap<std::pair<std::array<int64_t, 6>, StageKind>, BatchSumSeconds> sumSeconds;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_MESHTABLES_H

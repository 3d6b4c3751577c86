//===- CollectivePrices.h - Seconds of the collectives of a step -----------===//

#ifndef TBC_PLANNER_PREDICT_COLLECTIVEPRICES_H
#define TBC_PLANNER_PREDICT_COLLECTIVEPRICES_H

#include "planner/plan/Prediction.h"
#include "planner/predict/JoinedGathers.h"
#include "planner/reshard/Overlap.h"

#include <vector>

namespace tbc::planner {

/// Whether `reshard` is of a gradient.
bool isOfGradient(const reshard::Reshard &reshard);

/// Prices the collectives of a derived step as its executor runs them: parameters gathered
/// together, and its own work beside the network.
class CollectivePrices {
public:
  /// The arguments outlive this.
  CollectivePrices(const reshard::Mesh &mesh, const reshard::Derivation &derivation,
                   const reshard::Overlap &overlap, const StageDevices &devices,
                   const StageNetworks &networks)
      : mesh(mesh), derivation(derivation), overlap(overlap), devices(devices), networks(networks),
        gathers(devices, networks) {}

  /// Returns the seconds of one execution of `step`. Calls are in the order of
  /// forEachCollective(), each once.
  double seconds(const reshard::Reshard &reshard, const reshard::Collective &step);

private:
  const reshard::Mesh &mesh;
  const reshard::Derivation &derivation;
  const reshard::Overlap &overlap;
  const StageDevices &devices;
  const StageNetworks &networks;
  JoinedGathers gathers;
};

/// Returns the list of collectives with the seconds of one execution. Where an executor joins
/// gathers, these are seconds in the mean. Example: 1,162 gathers that take 540 ms together, 9
/// joined in each, have 0.46 ms.
std::vector<CollectiveLine> collectiveLines(const reshard::Graph &graph,
                                            const reshard::Assignment &assignment,
                                            const reshard::Derivation &derivation,
                                            const reshard::Overlap &overlap,
                                            const StageDevices &devices);

/// Returns the seconds of a line of `lines` with the kind, axes, stage and bytes of `count`, or
/// those of the network alone if there is none.
double listedSeconds(const std::vector<CollectiveLine> &lines, const StageNetworks &networks,
                     const reshard::Mesh &mesh, const reshard::CollectiveCount &count);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_COLLECTIVEPRICES_H

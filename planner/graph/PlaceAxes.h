//===- PlaceAxes.h - Strategies derived from those of tp ------------------===//

#ifndef TBC_PLANNER_GRAPH_PLACEAXES_H
#define TBC_PLANNER_GRAPH_PLACEAXES_H

#include "planner/reshard/Graph.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the strategies of all ops, given those of the forward ops. Backward ops inherit, except
/// ops that choose for themselves (choosesForItself); these keep their entry.
std::vector<reshard::OpStrategy> completeStrategies(const reshard::Graph &graph,
                                                    std::vector<reshard::OpStrategy> strategies);

/// Returns `strategies`, which use no axis but tp, with the batch or, in ops with experts, the
/// experts split over `axes` first (batchStrategy). An op that cannot have both loses its tp split.
std::vector<reshard::OpStrategy> withExperts(const reshard::Graph &graph,
                                             const std::vector<reshard::OpStrategy> &strategies,
                                             const std::vector<reshard::AxisRef> &axes);

/// Splits the sequence over `axes` (contextStrategy) in every op of `strategies` that chooses for
/// itself and has none of these axes yet. Completes the other ops. Returns "", or the reason
/// against the form with the name of the op.
std::string addContext(const reshard::Graph &graph, std::vector<reshard::OpStrategy> &strategies,
                       const std::vector<reshard::AxisRef> &axes, reshard::ContextForm form);

/// Whether a backward op chooses for itself instead of inheriting from its forward op.
bool choosesForItself(const reshard::Graph &graph, int op);

/// Whether splitting `factor` separates the queries of `op` from its keys, while the keys stay
/// whole or stream: context parallelism (CP).
bool partsQueries(const reshard::GraphOp &op, reshard::FactorId factor);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_PLACEAXES_H

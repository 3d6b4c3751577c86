//===- LayerBegins.h - The layers of a model, by their names --------------===//

#ifndef TBC_PLANNER_SEARCH_LAYERBEGINS_H
#define TBC_PLANNER_SEARCH_LAYERBEGINS_H

#include "planner/plan/Plan.h"

#include <vector>

namespace tbc::planner {

/// Returns the ops where a stage may begin with a layer, ascending, without that of the first
/// layer. Layers are the modules of one path and a number, such as "h.0" and "h.1"; of several such
/// lists, the one with the most FLOPs. Empty if no module has a number.
std::vector<int> layerBegins(const reshard::Graph &graph, const Job &job);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_LAYERBEGINS_H

//===- Count.h - Axes in the list of collectives ---------------------------===//

#ifndef TBC_PLANNER_RESHARD_COUNT_H
#define TBC_PLANNER_RESHARD_COUNT_H

#include "planner/reshard/Collective.h"

#include <string>

namespace tbc::reshard {

/// Returns the axes of a collective as CollectiveCount has them. Examples: "dp+fsdp" for a
/// reduction over both; "pp" for a send, which has no axes.
std::string axesText(const Mesh &mesh, const Collective &collective);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_COUNT_H

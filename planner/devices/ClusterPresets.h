//===- ClusterPresets.h - The cluster files that are built in --------------===//

#ifndef TBC_PLANNER_DEVICES_CLUSTERPRESETS_H
#define TBC_PLANNER_DEVICES_CLUSTERPRESETS_H

#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Name and TOML text of every preset, sorted by name.
const std::vector<std::pair<std::string, std::string>> &clusterPresetTexts();

/// The same for the executors in planner/executors.
const std::vector<std::pair<std::string, std::string>> &executorTexts();

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_CLUSTERPRESETS_H

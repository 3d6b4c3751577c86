//===- Targets.h - The table of targets -------------------------------------===//

#ifndef TBC_TOOLS_EXPORT_TARGETS_H
#define TBC_TOOLS_EXPORT_TARGETS_H

#include "tools/export/Export.h"

#include <string>
#include <vector>

namespace tbc::exporter {

/// All targets, in the order of the help text.
const std::vector<Target> &targets();
const Target *findTarget(const std::string &word);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_TARGETS_H

//===- Torchtitan.h - A plan as configuration module of torchtitan --------------------===//

#ifndef TBC_TOOLS_EXPORT_TORCHTITAN_H
#define TBC_TOOLS_EXPORT_TORCHTITAN_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns a configuration module of torchtitan. Errors: Usage, naming every part of the plan that
/// has no form there.
Result<Exported> writeTorchtitan(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_TORCHTITAN_H

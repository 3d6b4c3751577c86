//===- Accelerate.h - A plan as accelerate's YAML --------------------===//

#ifndef TBC_TOOLS_EXPORT_ACCELERATE_H
#define TBC_TOOLS_EXPORT_ACCELERATE_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns accelerate's YAML. Errors: Usage, naming every part of the plan that has no form there.
Result<Exported> writeAccelerate(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_ACCELERATE_H

//===- Lightning.h - A plan as module with a Lightning Trainer --------------------===//

#ifndef TBC_TOOLS_EXPORT_LIGHTNING_H
#define TBC_TOOLS_EXPORT_LIGHTNING_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns a module with a Lightning Trainer. Errors: Usage, naming every part of the plan that has
/// no form there.
Result<Exported> writeLightning(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_LIGHTNING_H

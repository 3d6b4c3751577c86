//===- Megatron.h - A plan as flags of Megatron-LM --------------------===//

#ifndef TBC_TOOLS_EXPORT_MEGATRON_H
#define TBC_TOOLS_EXPORT_MEGATRON_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns flags of Megatron-LM. Errors: Usage, naming every part of the plan that has no form
/// there.
Result<Exported> writeMegatron(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_MEGATRON_H

//===- DeepSpeed.h - A plan as DeepSpeed's JSON --------------------===//

#ifndef TBC_TOOLS_EXPORT_DEEPSPEED_H
#define TBC_TOOLS_EXPORT_DEEPSPEED_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns DeepSpeed's JSON. Errors: Usage, naming every part of the plan that has no form there.
Result<Exported> writeDeepSpeed(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_DEEPSPEED_H

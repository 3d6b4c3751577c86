//===- PyTorch.h - A plan as training script that needs torch alone --------------------===//

#ifndef TBC_TOOLS_EXPORT_PYTORCH_H
#define TBC_TOOLS_EXPORT_PYTORCH_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns a training script that needs torch alone. Errors: Usage, naming every part of the plan
/// that has no form there.
Result<Exported> writePyTorch(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_PYTORCH_H

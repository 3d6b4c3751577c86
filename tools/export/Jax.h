//===- Jax.h - A plan as module with a JAX mesh and PartitionSpecs --------------------===//

#ifndef TBC_TOOLS_EXPORT_JAX_H
#define TBC_TOOLS_EXPORT_JAX_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns a module with a JAX mesh and PartitionSpecs. Errors: Usage, naming every part of the
/// plan that has no form there.
Result<Exported> writeJax(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_JAX_H

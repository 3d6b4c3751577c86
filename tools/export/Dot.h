//===- Dot.h - A plan as drawing for Graphviz --------------------===//

#ifndef TBC_TOOLS_EXPORT_DOT_H
#define TBC_TOOLS_EXPORT_DOT_H

#include "tools/export/Export.h"

namespace tbc::exporter {

/// Returns a drawing for Graphviz. Errors: Usage, naming every part of the plan that has no form
/// there.
Result<Exported> writeDot(const PlanFacts &facts);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_DOT_H

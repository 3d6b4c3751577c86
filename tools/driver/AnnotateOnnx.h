//===- AnnotateOnnx.h - A plan as multi-device annotations of its model -----===//

#ifndef TBC_TOOLS_DRIVER_ANNOTATEONNX_H
#define TBC_TOOLS_DRIVER_ANNOTATEONNX_H

#include "tools/driver/Context.h"

#include <string>

namespace tbc::driver {

/// The annotated model.
struct AnnotatedModel {
  std::string bytes; // a ModelProto
  /// The first file of external data, which stays where it is; empty: all weights are inside.
  std::string externalData;
  /// Decisions of the plan that ONNX has no form for and no flag pins, as named warnings.
  std::vector<std::string> warnings;
};

/// Returns the model at `modelPath` with ONNX's multi-device annotations (docs/targets/onnx.md):
/// one device configuration of the plan's ranks, and for each node that runs a pipeline stage and
/// the shardings of its parameters and results. Flags of tbc plan for the other decisions stand in
/// the metadata "tbc.flags".
///
/// Errors: Usage if the model has local functions or annotations; those of `planner::applyPlan`.
Result<AnnotatedModel> annotateOnnx(const LoadedPlan &loaded, const std::string &modelPath);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_ANNOTATEONNX_H

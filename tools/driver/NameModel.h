//===- NameModel.h - Module names of a model's ops ----------------------------===//

#ifndef TBC_TOOLS_DRIVER_NAMEMODEL_H
#define TBC_TOOLS_DRIVER_NAMEMODEL_H

#include "planner/plan/ModelNames.h"
#include "tools/driver/TrainingStep.h"

#include <memory>

namespace tbc::driver {

/// Returns the modules of ops and the module paths of parameters. Op modules come from their
/// locations, which the importer fills from the exporter's metadata. An op without a module belongs
/// to the module of its parameters. Example: an op that reads "h.0.fc.weight" is in "h.0.fc".
std::shared_ptr<const planner::ModelNames> nameModel(const TrainingStep &step);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_NAMEMODEL_H

//===- NameModel.h - The modules of a model's ops -----------------------------===//

#ifndef TBC_TOOLS_DRIVER_NAMEMODEL_H
#define TBC_TOOLS_DRIVER_NAMEMODEL_H

#include "planner/core/ModelNames.h"
#include "tools/driver/TrainingStep.h"

#include <memory>

namespace tbc::driver {

/// The modules that ops are in, from their locations, which the importer makes of what the exporter
/// left; and the module paths of parameters. An op of no module belongs to that of the parameters
/// that it uses: "h.0.fc" of "h.0.fc.weight".
std::shared_ptr<const planner::ModelNames> nameModel(const TrainingStep &step);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_NAMEMODEL_H

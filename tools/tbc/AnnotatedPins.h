//===- AnnotatedPins.h - A model's device annotations as pins ----------------===//

#ifndef TBC_TOOLS_TBC_ANNOTATEDPINS_H
#define TBC_TOOLS_TBC_ANNOTATEDPINS_H

#include "planner/pins/Pins.h"
#include "tools/driver/TrainingStep.h"

#include <string>
#include <vector>

namespace tbc::cli {

/// Adds the device annotations of the step's model to `pins`: mesh, beginnings of stages, and how
/// ops are split over tp; and the flags of an exported plan. Does nothing without annotations.
///
/// `job` has the devices. Returns lines for people: what was pinned, and what was not needed.
///
/// Errors: Usage, with the node's name, for annotations that no plan has, and for flags that
/// contradict them.
Result<std::vector<std::string>> addAnnotatedPins(const driver::TrainingStep &step,
                                                  const planner::Job &job, planner::Pins &pins);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_ANNOTATEDPINS_H

//===- Conditions.h - Single decisions that a plan shall have or not -------===//

#ifndef TBC_PLANNER_CORE_CONDITIONS_H
#define TBC_PLANNER_CORE_CONDITIONS_H

#include "planner/core/Pins.h"

namespace tbc::planner {

/// Whether no condition about `decision` rules `value` out.
bool meets(const std::vector<Condition> &conditions, const std::string &decision,
           const std::string &value);
/// Whether no condition about an axis rules `mesh` out.
bool meets(const std::vector<Condition> &conditions, const MeshShape &mesh);

/// Errors: Usage, naming both, where a condition contradicts a pin or another condition.
Status checkConditions(const Pins &pins);

/// What --pin and --forbid said when `plan` was made, as its reasons have it. Errors: Usage for
/// reasons that were edited and cannot be read.
Result<Pins> pinsOf(const Plan &plan);

/// How a condition names a choice: "0" to "3", "shard-grad-op".
std::string zeroWord(const ZeroChoice &choice);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_CONDITIONS_H

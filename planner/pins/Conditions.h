//===- Conditions.h - Single decisions required or forbidden by the user --===//

#ifndef TBC_PLANNER_PINS_CONDITIONS_H
#define TBC_PLANNER_PINS_CONDITIONS_H

#include "planner/pins/Pins.h"

namespace tbc::planner {

/// Reads "tp=8" or "tp=8,recompute=none". Errors: Usage, with a suggestion for an unknown word.
Result<std::vector<Condition>> parseConditions(const std::string &text);

/// Describes conditions. Example: "tp=8 and not recompute=none".
std::string toString(const std::vector<Condition> &conditions);

/// Adds a --pin or, if `isForbidden`, --forbid argument to `pins`. The forms are "tp=8"
/// (parseConditions) and "GLOB=SPEC" (OpPin). --forbid also accepts a decision alone, and removes
/// it. Example: "pp" forbids pipelines. Errors: Usage, with a suggestion for an unknown word.
Status addPin(const std::string &text, bool isForbidden, Pins &pins);

/// Whether all conditions about `decision` allow `value`.
bool meets(const std::vector<Condition> &conditions, const std::string &decision,
           const std::string &value);
/// Whether all conditions about axes allow `mesh`.
bool meets(const std::vector<Condition> &conditions, const MeshShape &mesh);

/// Returns the flag as given by the user, or the condition in words.
std::string flagOf(const Condition &condition);
/// Returns the value of a decision that is a number, as parseConditions() has checked. Example: 8
/// of "tp=8".
int64_t numberOf(const Condition &condition);
/// Returns the condition that asks for a size of `axis`, or null.
const Condition *askedSize(const Pins &pins, Axis axis);

/// Errors: Usage, naming both, if a condition contradicts a pin or another condition.
Status checkConditions(const Pins &pins);

/// Returns the --pin and --forbid arguments of `plan`, read from its reasons. Errors: Usage if
/// edited reasons cannot be read.
Result<Pins> pinsOf(const Plan &plan);

/// Returns the word of a choice in a condition: "0" to "3", "shard-grad-op".
std::string zeroWord(const ZeroChoice &choice);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_CONDITIONS_H

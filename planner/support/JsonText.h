//===- JsonText.h - JSON for people and for diff --------------------------===//

#ifndef TBC_PLANNER_SUPPORT_JSONTEXT_H
#define TBC_PLANNER_SUPPORT_JSONTEXT_H

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tbc::planner {

/// Returns `json` with sorted keys, one blank of indentation per level, and a final newline. An
/// array or object that fits into 100 columns stands on one line, so that a list of axes is one
/// line of a diff. Text that is not UTF-8 is replaced.
/// Example: {"a": [1, 2], "b": []}
std::string jsonText(const nlohmann::json &json);

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_JSONTEXT_H

//===- IdList.h - Long lists of op names, written short --------------------===//

#ifndef TBC_PLANNER_CORE_IDLIST_H
#define TBC_PLANNER_CORE_IDLIST_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// The set `ids` as patterns: "h.{0..11}.fc" stands for h.0.fc to h.11.fc, "n{3..30..9}" for n3,
/// n12, n21, n30; a brace of a name is doubled. Sorted; depends on the set alone.
std::vector<std::string> compressIds(const std::vector<std::string> &ids);

/// The ids that `patterns` stand for, sorted, each once. Errors: Other, naming the pattern that is
/// malformed or stands for too many.
Result<std::vector<std::string>> expandIds(const std::vector<std::string> &patterns);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_IDLIST_H

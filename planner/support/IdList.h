//===- IdList.h - Long lists of op names, written short --------------------===//

#ifndef TBC_PLANNER_SUPPORT_IDLIST_H
#define TBC_PLANNER_SUPPORT_IDLIST_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the set `ids` as patterns. Example: "h.{0..11}.fc" stands for h.0.fc to h.11.fc, and
/// "n{3..30..9}" for n3, n12, n21, n30. A brace in a name is doubled. Sorted; depends only on the
/// set.
std::vector<std::string> compressIds(const std::vector<std::string> &ids);

/// Returns the ids that match `patterns`, sorted, each once. Errors: Other, naming a pattern that
/// is malformed or has too many ids.
Result<std::vector<std::string>> expandIds(const std::vector<std::string> &patterns);

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_IDLIST_H

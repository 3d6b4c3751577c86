//===- ProfileFile.cpp - Profiles of a run ---------------------------------===//

#include "tools/tbc/ProfileFile.h"

#include "planner/view/Nsight.h"
#include "tools/tbc/Command.h"

namespace tbc::cli {

Result<planner::MeasuredStep> readProfileFile(const std::string &path, const planner::Plan &plan,
                                              std::optional<int64_t> firstRank) {
  if (planner::isSqlite(path))
    return planner::readNsight(path, plan, firstRank);
  if (firstRank)
    return Error{ErrorCode::Usage, "--profile-rank is for exports of Nsight Systems; " + path +
                                       " says its ranks by itself"};
  auto text = readFile(path, ErrorCode::Usage);
  return text ? planner::readProfile(*text, path, plan) : text.error();
}

} // namespace tbc::cli

//===- ChunkFile.h - The seconds of chunks in plan.json --------------------===//

#ifndef TBC_PLANNER_PLAN_CHUNKFILE_H
#define TBC_PLANNER_PLAN_CHUNKFILE_H

#include "planner/plan/ChunkSeconds.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json_fwd.hpp>

namespace tbc::planner {

/// Returns the key prediction.chunks: equal chunks are one entry, parts of 0 s are left out.
nlohmann::json chunksJson(const std::vector<ChunkSeconds> &chunks);

/// The inverse, for `count` chunks, as many as prediction.stage_seconds has. Reports a chunk that
/// is named twice or left out.
std::vector<ChunkSeconds> readChunks(JsonObject &prediction, int64_t count, KeyProblem &problem);

/// Returns the first part whose work does not add up to its seconds, or "". Tolerance: 1 part in
/// 10^9, as sums are rounded.
std::string whyWorkIsInconsistent(const std::vector<ChunkSeconds> &chunks);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_CHUNKFILE_H

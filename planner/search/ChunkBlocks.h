//===- ChunkBlocks.h - Graph blocks by pipeline chunk and stage -----------===//

#ifndef TBC_PLANNER_SEARCH_CHUNKBLOCKS_H
#define TBC_PLANNER_SEARCH_CHUNKBLOCKS_H

#include "planner/search/CostTables.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace tbc::planner {

// Of a candidate with known cuts. A block belongs to the chunk of its first op.

/// Returns the op at the end of chunk `chunk`.
int endOf(const SearchProblem &problem, const Candidate &candidate, int chunk);

/// Returns the number of blocks of stage `stage`.
int64_t blocksOn(const CostTables &costs, const Candidate &candidate, int stage);

/// Returns, by chunk of the stage, the op at the end of its first blocks, `blocks` in total. The
/// chunks of a stage get blocks in proportion, so they stay similar. Example: 3 of 6 blocks, on
/// chunks of 4 and 2 blocks, are the first 2 and the first 1.
std::vector<std::pair<int, int>> endsOf(const CostTables &costs, const Candidate &candidate,
                                        int stage, int64_t blocks);

/// Returns the stage's share of `blocks` of the whole model. Example: 6 of 12 blocks on a stage
/// with the first 4 blocks: 2.
int64_t shareOf(const CostTables &costs, const Candidate &candidate, int stage, int64_t blocks);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CHUNKBLOCKS_H

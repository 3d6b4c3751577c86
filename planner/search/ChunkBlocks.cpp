//===- ChunkBlocks.cpp - Graph blocks by pipeline chunk and stage ---------===//

#include "planner/search/ChunkBlocks.h"

#include <algorithm>

namespace tbc::planner {

int endOf(const SearchProblem &problem, const Candidate &candidate, int chunk) {
  return chunk + 1 < int(candidate.firstOps.size()) ? candidate.firstOps[chunk + 1]
                                                    : problem.numForward;
}

/// Returns the first and the past-the-end index of the blocks that begin in the chunk.
static std::pair<size_t, size_t> blocksIn(const SearchProblem &problem, const Candidate &candidate,
                                          int chunk) {
  const std::vector<int> &begins = problem.blockBegins;
  auto first = std::lower_bound(begins.begin(), begins.end(), candidate.firstOps[chunk]);
  auto last = std::lower_bound(first, begins.end(), endOf(problem, candidate, chunk));
  return {size_t(first - begins.begin()), size_t(last - begins.begin())};
}

int64_t blocksOn(const CostTables &costs, const Candidate &candidate, int stage) {
  int64_t blocks = 0;
  for (int chunk : costs.schedules.chunksOf(candidate, stage)) {
    auto [first, last] = blocksIn(costs.problem, candidate, chunk);
    blocks += int64_t(last - first);
  }
  return blocks;
}

std::vector<std::pair<int, int>> endsOf(const CostTables &costs, const Candidate &candidate,
                                        int stage, int64_t blocks) {
  std::vector<std::pair<int, int>> ends;
  int64_t total = blocksOn(costs, candidate, stage), seen = 0;
  for (int chunk : costs.schedules.chunksOf(candidate, stage)) {
    auto [first, last] = blocksIn(costs.problem, candidate, chunk);
    int64_t until = seen + int64_t(last - first);
    int64_t share = total == 0 ? 0 : blocks * until / total - blocks * seen / total;
    seen = until;
    bool all = blocks >= total || share == int64_t(last - first);
    ends.push_back({chunk, all          ? endOf(costs.problem, candidate, chunk)
                           : share == 0 ? candidate.firstOps[chunk]
                                        : costs.problem.blockBegins[first + size_t(share)]});
  }
  return ends;
}

int64_t shareOf(const CostTables &costs, const Candidate &candidate, int stage, int64_t blocks) {
  int64_t before = 0, all = costs.problem.numBlocks();
  for (int other = 0; other < stage; ++other)
    before += blocksOn(costs, candidate, other);
  return blocks * (before + blocksOn(costs, candidate, stage)) / all - blocks * before / all;
}

} // namespace tbc::planner

//===- PartialRecompute.cpp - Recomputation of the fewest blocks ----------===//
//
// A candidate with recomputation "selective" or "full" uses it in the first blocks of each chunk,
// as many as its stage needs to fit. The other blocks use the next weaker mode. The first blocks
// are chosen because their values are kept longest, and they recompute when the others have freed
// theirs.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/graph/Stages.h"
#include "planner/pins/Space.h"
#include "planner/search/Searcher.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

int Searcher::endOf(const Candidate &candidate, int chunk) const {
  return chunk + 1 < int(candidate.firstOps.size()) ? candidate.firstOps[chunk + 1]
                                                    : problem.numForward;
}

std::pair<size_t, size_t> Searcher::startsIn(const Candidate &candidate, int chunk) const {
  auto first = std::lower_bound(problem.blockBegins.begin(), problem.blockBegins.end(),
                                candidate.firstOps[chunk]);
  auto last = std::lower_bound(first, problem.blockBegins.end(), endOf(candidate, chunk));
  return {size_t(first - problem.blockBegins.begin()), size_t(last - problem.blockBegins.begin())};
}

int64_t Searcher::blocksOn(const Candidate &candidate, int stage) const {
  int64_t blocks = 0;
  for (int chunk : costs.schedules.chunksOf(candidate, stage)) {
    auto [first, last] = startsIn(candidate, chunk);
    blocks += int64_t(last - first);
  }
  return blocks;
}

/// Returns, by chunk of the stage, the op at the end of its first blocks, `blocks` in total.
std::vector<std::pair<int, int>> Searcher::endsOf(const Candidate &candidate, int stage,
                                                  int64_t blocks) const {
  std::vector<std::pair<int, int>> ends;
  int64_t total = blocksOn(candidate, stage), seen = 0;
  for (int chunk : costs.schedules.chunksOf(candidate, stage)) {
    // In proportion, so the chunks of a stage stay similar.
    auto [first, last] = startsIn(candidate, chunk);
    int64_t until = seen + int64_t(last - first);
    int64_t share = total == 0 ? 0 : blocks * until / total - blocks * seen / total;
    seen = until;
    bool all = blocks >= total || share == int64_t(last - first);
    ends.push_back({chunk, all          ? endOf(candidate, chunk)
                           : share == 0 ? candidate.firstOps[chunk]
                                        : problem.blockBegins[first + size_t(share)]});
  }
  return ends;
}

void Searcher::setAgain(Candidate &candidate, int stage, int64_t blocks) const {
  candidate.again.resize(candidate.firstOps.size());
  candidate.blocksAgain.resize(candidate.mesh.pp);
  candidate.blocksAgain[stage] = blocks;
  for (auto [chunk, end] : endsOf(candidate, stage, blocks))
    candidate.again[chunk] = end;
}

/// Returns the stage's share of `blocks` of the whole model.
int64_t Searcher::share(const Candidate &candidate, int stage, int64_t blocks) const {
  int64_t before = 0, all = int64_t(problem.blockBegins.size());
  for (int other = 0; other < stage; ++other)
    before += blocksOn(candidate, other);
  return blocks * (before + blocksOn(candidate, stage)) / all - blocks * before / all;
}

bool Searcher::chooseAgain(Candidate &candidate, const Mix &mix, const DataMode &mode) {
  bool any = false;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage) {
    int64_t low = 0, high = blocksOn(candidate, stage);
    if (std::optional<int64_t> pinned = space.blocksAgain()) {
      low = share(candidate, stage, *pinned);
    } else {
      while (low < high) { // the fewest that fit; all of them if it never fits
        int64_t middle = (low + high) / 2;
        setAgain(candidate, stage, middle);
        bool isEnough = fits(candidate, mix, mode, stage);
        (isEnough ? high : low) = isEnough ? middle : middle + 1;
      }
    }
    setAgain(candidate, stage, low);
    any |= low > 0;
  }
  return any;
}

bool Searcher::recomputeSome(Candidate &candidate) const {
  if (candidate.recompute != RecomputeMode::None || !space.recomputeIsOpen())
    return false;
  candidate.recompute = RecomputeMode::Selective;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage)
    setAgain(candidate, stage, 0);
  return true;
}

bool Searcher::recomputeMore(Candidate &candidate, const std::vector<double> &roomBytes) {
  if (candidate.blocksAgain.empty() || space.blocksAgain())
    return false; // the number is pinned
  Mix mix = costs.models.mixOf(candidate);
  DataMode mode = firstMode(costs, candidate);
  bool any = false;
  for (int stage = 0; stage < int(candidate.blocksAgain.size()); ++stage) {
    int64_t now = candidate.blocksAgain[stage], most = blocksOn(candidate, stage);
    if (roomBytes[stage] >= 0 || now >= most)
      continue;
    double bytes = heldBytes(candidate, mix, mode, stage);
    int64_t more = now;
    do
      setAgain(candidate, stage, ++more);
    while (more < most && bytes - heldBytes(candidate, mix, mode, stage) < -roomBytes[stage]);
    any = true;
  }
  return any;
}

bool Searcher::recomputeLess(Candidate &candidate, const std::vector<double> &roomBytes) {
  if (candidate.blocksAgain.empty() || space.blocksAgain())
    return false;
  // Error of a score, as a fraction of a block's kept bytes; a smaller excess is worth a
  // derivation.
  constexpr double tolerance = 0.05;
  Mix mix = costs.models.mixOf(candidate);
  DataMode mode = firstMode(costs, candidate);
  bool any = false;
  for (int stage = 0; stage < int(candidate.blocksAgain.size()); ++stage) {
    const int64_t now = candidate.blocksAgain[stage];
    double bytes = heldBytes(candidate, mix, mode, stage);
    for (int64_t fewer = now; fewer > 0; --fewer) {
      double before = heldBytes(candidate, mix, mode, stage);
      setAgain(candidate, stage, fewer - 1);
      double after = heldBytes(candidate, mix, mode, stage);
      if (after - bytes > roomBytes[stage] + tolerance * (after - before)) {
        setAgain(candidate, stage, fewer);
        break;
      }
    }
    any |= candidate.blocksAgain[stage] < now;
  }
  return any;
}

std::vector<bool> Searcher::flagsOf(const Candidate &candidate) {
  std::vector<bool> flags =
      costs.models.flagsFor(candidate.recompute, candidate.microBatch * candidate.mesh.ep);
  if (candidate.again.empty())
    return flags;
  const std::vector<bool> &weaker = costs.models.flagsFor(weakerMode(candidate.recompute),
                                                          candidate.microBatch * candidate.mesh.ep);
  for (int chunk = 0; chunk < int(candidate.firstOps.size()); ++chunk)
    for (int op = candidate.again[chunk]; op < endOf(candidate, chunk); ++op)
      flags[op] = weaker[op];
  return flags;
}

Recompute Searcher::recomputeOf(const Candidate &candidate) const {
  if (candidate.again.empty())
    return {candidate.recompute};
  int64_t blocks = 0;
  for (int64_t onStage : candidate.blocksAgain)
    blocks += onStage;
  if (blocks == 0)
    return {weakerMode(candidate.recompute)};
  return {candidate.recompute, BlockShare::share(blocks, problem.numBlocks())};
}

} // namespace tbc::planner

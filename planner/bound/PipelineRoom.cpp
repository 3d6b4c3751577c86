//===- PipelineRoom.cpp - Total kept bytes of a pipeline's stages ---------===//

#include "planner/bound/PipelineRoom.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tbc::planner {

/// Returns the largest excess of `member` over its share by seconds, for any run of parts, also
/// across the ends of blocks. With `sign` -1, the largest deficit.
static double mostBeyondShare(const std::vector<BlockPart> &block, double BlockPart::*member,
                              double sign, double perSecond) {
  double most = 0;
  for (size_t first = 0; first < block.size(); ++first) {
    double beyond = 0;
    for (size_t length = 0; length < block.size(); ++length) {
      const BlockPart &part = block[(first + length) % block.size()];
      beyond += sign * (part.*member - perSecond * part.seconds);
      most = std::max(most, beyond);
    }
  }
  return most;
}

double PipelineRoom::mostKeptBytes() const {
  BlockPart whole;
  for (const BlockPart &part : block) {
    whole.seconds += part.seconds;
    whole.keptBytes += part.keptBytes;
    whole.fixedBytes += part.fixedBytes;
    whole.crossingBytes = std::max(whole.crossingBytes, part.crossingBytes);
  }
  double perChunk = mostBeyondShare(block, &BlockPart::keptBytes, 1,
                                    whole.keptBytes / whole.seconds) +
                    whole.crossingBytes; // kept on the receiving chunk, not on the producing one
  double keptBeyond = chunksPerStage * perChunk;
  double usable = usableBytes + chunksPerStage * mostBeyondShare(block, &BlockPart::fixedBytes, -1,
                                                                 whole.fixedBytes / whole.seconds);
  double most = mostSeconds / whole.seconds; // blocks on a stage
  if (whole.fixedBytes > 0)
    most = std::min(most, usable / whole.fixedBytes);
  most *= 1 + 1e-9; // for rounding
  if (most < 0 || most * double(inFlight.size()) < count)
    return -1;

  double placed = 0, kept = 0;
  std::vector<double> on; // blocks by stage: the most that it can keep entirely
  for (double copies : inFlight) {
    double all = (usable - copies * keptBeyond) / (copies * whole.keptBytes + whole.fixedBytes);
    on.push_back(std::clamp(all, 0.0, most));
    placed += on.back();
    kept += std::min(on.back() * whole.keptBytes + keptBeyond,
                     (usable - on.back() * whole.fixedBytes) / copies);
  }
  // Each further block reduces the kept bytes, least on stages with the most copies.
  std::vector<size_t> stages(inFlight.size());
  std::iota(stages.begin(), stages.end(), size_t(0));
  std::sort(stages.begin(), stages.end(), [&](size_t a, size_t b) {
    return inFlight[a] != inFlight[b] ? inFlight[a] > inFlight[b] : a < b;
  });
  for (size_t stage : stages) {
    double more = std::clamp(count - placed, 0.0, most - on[stage]);
    placed += more;
    kept -= more * whole.fixedBytes / inFlight[stage];
  }
  return std::clamp(kept, 0.0, count * whole.keptBytes);
}

double mostKeptAnywhere(double usableBytes, const std::vector<double> &inFlight,
                        double fixedBytes) {
  std::vector<double> counts = inFlight;
  std::sort(counts.begin(), counts.end());
  double least = std::numeric_limits<double>::infinity();
  double fewer = 0; // the sum of 1/n over the stages with fewer than m in flight
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    const double m = counts[stage];
    least =
        std::min(least, usableBytes * (fewer + double(counts.size() - stage) / m) - fixedBytes / m);
    fewer += 1 / m;
  }
  return least;
}

} // namespace tbc::planner

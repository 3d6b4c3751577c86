//===- PipelineBound.cpp - No cut of a model makes a schedule shorter ------===//

#include "planner/core/PipelineBound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tbc::planner {

namespace {

/// The actions of a schedule in an order in which each comes after those it waits for.
class Chains {
public:
  explicit Chains(const PipelineSchedule &schedule)
      : numChunks(schedule.pipeline.numChunks()), numMicroBatches(size_t(schedule.accumulation)),
        parts(schedule::splitsBackward(schedule.kind)) {
    const schedule::Pipeline &pipeline = schedule.pipeline;
    std::vector<std::vector<int>> chunksOf;
    for (int stage = 0; stage < pipeline.numStages; ++stage)
      chunksOf.push_back(pipeline.chunksOf(stage));
    std::vector<size_t> next(chunksOf.size(), 0);
    std::vector<int> last(chunksOf.size(), -1);
    numbers.assign(size_t(numChunks) * numMicroBatches * 2, -1);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t stage = 0; stage < chunksOf.size(); ++stage)
        while (next[stage] < schedule.actions[stage].size()) {
          const schedule::Action &action = schedule.actions[stage][next[stage]];
          if (action.kind != schedule::Action::Kind::Update) {
            int chunk = chunksOf[stage][action.chunk], before = -1;
            if (!isReady(action, chunk, before))
              break;
            if (action.kind != schedule::Action::Kind::Weight)
              number(action.kind, chunk, action.microBatch) = int(actions.size());
            actions.push_back({action.kind, chunk, last[stage], before});
            last[stage] = int(actions.size()) - 1;
          }
          ++next[stage];
          progress = true;
        }
    }
  }

  /// The chain that takes longest where chunk c has `share[c]` of `total`: how often each phase of
  /// each chunk lies on it is added to `counts` (forward, backward, weight, by chunk).
  void addLongest(const std::vector<double> &share, const WorkShare &total,
                  std::vector<std::array<double, 3>> &counts) const {
    std::vector<double> end(actions.size());
    std::vector<int> from(actions.size());
    size_t longest = 0;
    for (size_t i = 0; i < actions.size(); ++i) {
      const Node &node = actions[i];
      double onStage = node.onStage < 0 ? 0 : end[node.onStage];
      double before = node.before < 0 ? 0 : end[node.before];
      from[i] = before > onStage ? node.before : node.onStage;
      double seconds[] = {total.forward, total.backward + (parts ? 0 : total.weight), total.weight};
      end[i] = std::max(before, onStage) + share[node.chunk] * seconds[int(node.kind)];
      if (end[i] > end[longest])
        longest = i;
    }
    for (int i = int(longest); i >= 0; i = from[i])
      ++counts[actions[i].chunk][int(actions[i].kind)];
  }

private:
  using Kind = schedule::Action::Kind;
  struct Node {
    Kind kind;
    int chunk;
    int onStage, before; // the actions it waits for: of its stage, and for its input; -1: none
  };

  int &number(Kind kind, int chunk, int64_t microBatch) {
    return numbers[(size_t(chunk) * numMicroBatches + size_t(microBatch)) * 2 +
                   (kind == Kind::Forward ? 0 : 1)];
  }

  /// Whether what `action` waits for has a number, which `before` receives.
  bool isReady(const schedule::Action &action, int chunk, int &before) {
    if (action.kind == Kind::Forward && chunk == 0)
      return true;
    before = action.kind == Kind::Weight    ? number(Kind::Backward, chunk, action.microBatch)
             : action.kind == Kind::Forward ? number(Kind::Forward, chunk - 1, action.microBatch)
             : chunk == numChunks - 1       ? number(Kind::Forward, chunk, action.microBatch)
                                            : number(Kind::Backward, chunk + 1, action.microBatch);
    return before >= 0;
  }

  int numChunks;
  size_t numMicroBatches;
  bool parts;
  std::vector<int> numbers;
  std::vector<Node> actions;
};

} // namespace

double ChainMixture::Counts::of(const WorkShare &share) const {
  return forward * share.forward + backward * share.backward + weight * share.weight +
         std::min({forward, backward, weight}) * share.anyPhase;
}

ChainMixture::ChainMixture(const PipelineSchedule &schedule, const WorkShare &total)
    : partsBackward(schedule::splitsBackward(schedule.kind)) {
  Chains chains(schedule);
  size_t numChunks = schedule.pipeline.chunkStage.size();
  std::vector<std::array<double, 3>> counts(numChunks, {0, 0, 0});
  auto costOf = [&](size_t chunk) {
    double weight = partsBackward ? counts[chunk][2] : counts[chunk][1];
    return counts[chunk][0] * total.forward + counts[chunk][1] * total.backward +
           weight * total.weight;
  };
  // Who cuts puts more where the chains so far were short: multiplicative weights, with a rate that
  // falls as what is known grows.
  constexpr int rounds = 160;
  std::vector<double> share(numChunks, 1.0 / double(numChunks));
  double whole = total.forward + total.backward + total.weight;
  for (int round = 1; round <= rounds; ++round) {
    chains.addLongest(share, total, counts);
    double least = std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t c = 0; c < numChunks; ++c)
      least = std::min(least, costOf(c));
    double rate = std::sqrt(8 * std::log(double(numChunks) + 1) / double(round)) /
                  (whole * double(schedule.accumulation));
    for (size_t c = 0; c < numChunks; ++c)
      sum += share[c] = std::exp(-rate * (costOf(c) - least));
    for (double &s : share)
      s /= sum;
  }
  for (const auto &[forward, backward, weight] : counts)
    chunks.push_back(
        {forward / rounds, backward / rounds, (partsBackward ? weight : backward) / rounds});
}

double ChainMixture::leastSeconds(const std::vector<WorkShare> &parts) const {
  double total = 0;
  for (const WorkShare &part : parts) {
    double least = std::numeric_limits<double>::infinity();
    for (const Counts &chunk : chunks)
      least = std::min(least, chunk.of(part));
    total += least;
  }
  return total;
}

} // namespace tbc::planner

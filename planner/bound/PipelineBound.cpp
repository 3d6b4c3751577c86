//===- PipelineBound.cpp - Makespan bound over all cuts of a model --------===//

#include "planner/bound/PipelineBound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

void WorkShare::add(const WorkShare &o, double times) {
  for (auto member : {&WorkShare::forward, &WorkShare::backward, &WorkShare::weight,
                      &WorkShare::anyPhase, &WorkShare::foundForward, &WorkShare::foundBackward,
                      &WorkShare::foundWeight, &WorkShare::lessForward, &WorkShare::moreBackward})
    this->*member += times * o.*member;
}

void SendSeconds::atLeast(double seconds) {
  least = std::max(least, seconds);
  for (std::vector<double> *list : {&forward, &backward})
    for (double &send : *list)
      send = std::max(send, seconds);
}

WorkInOrder::WorkInOrder(const std::vector<WorkShare> &parts, std::vector<bool> mayBegin)
    : mayBegin(std::move(mayBegin)) {
  std::map<std::array<double, 9>, int> numbers;
  for (const WorkShare &part : parts) {
    auto [found, isNew] = numbers.try_emplace(
        {part.forward, part.backward, part.weight, part.anyPhase, part.foundForward,
         part.foundBackward, part.foundWeight, part.lessForward, part.moreBackward},
        int(kinds.size()));
    if (isNew)
      kinds.push_back(part);
    kindOf.push_back(found->second);
    total.add(part, 1);
  }
}

WorkShare WorkShare::least() const {
  WorkShare least;
  least.forward = std::max(0.0, forward - lessForward - foundForward);
  least.backward = std::max(0.0, backward - foundBackward);
  least.weight = std::max(0.0, weight - foundWeight);
  least.anyPhase = anyPhase;
  return least;
}

namespace {

/// The number of times that a chain passes a chunk.
struct ChainCounts {
  std::array<double, 3> actions = {0, 0, 0};  // forward, backward, weight
  double sendsForward = 0, sendsBackward = 0; // to it, that the chain waits for
};

/// The actions of a schedule in topological order.
class Chains {
public:
  explicit Chains(const PipelineSchedule &schedule)
      : numChunks(schedule.pipeline.numChunks()), numMicroBatches(size_t(schedule.accumulation)),
        parts(schedule::splitsBackward(schedule.kind)), stageOf(schedule.pipeline.chunkStage) {
    const schedule::Pipeline &pipeline = schedule.pipeline;
    std::vector<std::vector<int>> chunksOf;
    for (int stage = 0; stage < pipeline.numStages; ++stage)
      chunksOf.push_back(pipeline.chunksOf(stage));
    std::vector<size_t> next(chunksOf.size(), 0);
    std::vector<int> last(chunksOf.size(), none);
    numbers.assign(size_t(numChunks) * numMicroBatches * 2, none);
    firstOf.assign(size_t(numChunks), none);
    lastOf.assign(size_t(numChunks), none);
    microBatchOf.assign(size_t(numChunks), 0);
    actions.push_back({0, none, none, false});
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t stage = 0; stage < chunksOf.size(); ++stage)
        while (next[stage] < schedule.actions[stage].size()) {
          const schedule::Action &action = schedule.actions[stage][next[stage]];
          if (action.kind != schedule::Action::Kind::Update) {
            int chunk = chunksOf[stage][action.chunk], before = none;
            if (!isReady(action, chunk, before))
              break;
            if (action.kind != schedule::Action::Kind::Weight)
              number(action.kind, chunk, action.microBatch) = int(actions.size());
            const bool isSent =
                before != none &&
                stageOf[size_t(actions[size_t(before)].place / numKinds)] != stageOf[size_t(chunk)];
            actions.push_back({chunk * numKinds + int(action.kind), last[stage], before, isSent});
            last[stage] = int(actions.size()) - 1;
            if (action.kind == Kind::Forward && firstOf[size_t(chunk)] == none)
              firstOf[size_t(chunk)] = last[stage];
            if (action.kind == Kind::Backward) {
              lastOf[size_t(chunk)] = last[stage];
              microBatchOf[size_t(chunk)] = action.microBatch;
            }
          }
          ++next[stage];
          progress = true;
        }
    }
    lastOnStage = std::move(last);
  }

  /// Finds the longest chain if chunk c has `share[c]` of `total` and each send between stages
  /// takes `sendSeconds`. Adds its actions and sends to `counts`, by chunk. Returns its number of
  /// sends.
  int addLongest(const std::vector<double> &share, const WorkShare &total, double sendSeconds,
                 std::vector<ChainCounts> &counts) {
    end.resize(actions.size());
    const double ofPhases[numKinds] = {total.forward, total.backward + (parts ? 0 : total.weight),
                                       total.weight};
    secondsOf.clear();
    for (double of : share)
      for (double phase : ofPhases)
        secondsOf.push_back(of * phase);
    int longest = none + 1;
    longestSeconds = 0;
    for (int i = none + 1; i < int(actions.size()); ++i) {
      const Node &node = actions[i];
      const double arrives = end[node.before] + (node.isSent ? sendSeconds : 0);
      const double seconds = std::max(arrives, end[node.onStage]) + secondsOf[node.place];
      end[i] = seconds;
      if (seconds > longestSeconds) {
        longestSeconds = seconds;
        longest = i;
      }
    }
    int sends = 0;
    for (int i = longest, from = none; i != none; i = from) {
      const Node &node = actions[i];
      const double arrives = end[node.before] + (node.isSent ? sendSeconds : 0);
      const bool waits = arrives > end[node.onStage];
      from = waits ? node.before : node.onStage;
      ChainCounts &chunk = counts[size_t(node.place / numKinds)];
      ++chunk.actions[size_t(node.place % numKinds)];
      if (waits && node.isSent) {
        ++(node.place % numKinds == int(Kind::Forward) ? chunk.sendsForward : chunk.sendsBackward);
        ++sends;
      }
    }
    return sends;
  }

  /// Adds a chain that passes the stage of `chunk`: the first micro-batch there on its way forward
  /// to the chunk, then all actions of the stage, and the last one on its way back to chunk 0, with
  /// the rest of that stage. Adds to `counts`, by chunk. Returns its number of sends. `staysThere`:
  /// the rest of the stage of `chunk` instead of the way back.
  int addThrough(int chunk, bool staysThere, std::vector<ChainCounts> &counts) {
    const int stage = stageOf[size_t(chunk)];
    const int first = firstOf[size_t(chunk)], last = lastOf[size_t(chunk)];
    int sends = 0;
    auto count = [&](int i, bool waits) {
      const Node &node = actions[size_t(i)];
      ChainCounts &here = counts[size_t(node.place / numKinds)];
      ++here.actions[size_t(node.place % numKinds)];
      if (!waits || !node.isSent)
        return;
      ++(node.place % numKinds == int(Kind::Forward) ? here.sendsForward : here.sendsBackward);
      ++sends;
    };
    for (int i = actions[size_t(first)].before; i != none; i = actions[size_t(i)].before)
      count(i, true);
    const int end = staysThere ? lastOnStage[size_t(stage)] : last;
    for (int i = end; i != first; i = actions[size_t(i)].onStage)
      count(i, false);
    count(first, true);
    if (staysThere)
      return sends;
    int back = last; // of the same micro-batch on the chunks before
    for (int c = chunk - 1; c >= 0; --c) {
      back = backwardOf(c, microBatchOf[size_t(chunk)]);
      count(back, true);
    }
    for (int i = lastOnStage[size_t(stageOf[0])]; chunk > 0 && i != back;
         i = actions[size_t(i)].onStage)
      count(i, false);
    return sends;
  }

  /// Returns the seconds of the last chain found.
  double seconds() const { return longestSeconds; }

private:
  using Kind = schedule::Action::Kind;
  static constexpr int numKinds = 3;
  static constexpr int none = 0; // an action without time, for actions without predecessors
  struct Node {
    int place;           // of its chunk and kind, as secondsOf
    int onStage, before; // its predecessors: on its stage, and for its input
    bool isSent;         // its input comes from another stage
  };

  int &number(Kind kind, int chunk, int64_t microBatch) {
    return numbers[(size_t(chunk) * numMicroBatches + size_t(microBatch)) * 2 +
                   (kind == Kind::Forward ? 0 : 1)];
  }

  int backwardOf(int chunk, int64_t microBatch) {
    return number(Kind::Backward, chunk, microBatch);
  }

  /// Whether the input of `action` has a number; sets `before` to it.
  bool isReady(const schedule::Action &action, int chunk, int &before) {
    before = none;
    if (action.kind == Kind::Forward && chunk == 0)
      return true;
    before = action.kind == Kind::Weight    ? number(Kind::Backward, chunk, action.microBatch)
             : action.kind == Kind::Forward ? number(Kind::Forward, chunk - 1, action.microBatch)
             : chunk == numChunks - 1       ? number(Kind::Forward, chunk, action.microBatch)
                                            : number(Kind::Backward, chunk + 1, action.microBatch);
    return before != none;
  }

  int numChunks;
  size_t numMicroBatches;
  bool parts;
  const std::vector<int> &stageOf; // by chunk
  std::vector<int> numbers;
  std::vector<Node> actions;
  std::vector<int> firstOf, lastOf;  // by chunk: its first forward, and its last backward
  std::vector<int64_t> microBatchOf; // by chunk: of its last backward
  std::vector<int> lastOnStage;      // by stage: its last action
  // State of the last chain found.
  double longestSeconds = 0;
  std::vector<double> end;       // by action
  std::vector<double> secondsOf; // by chunk and kind
};

} // namespace

double ChainMixture::Counts::least() const { return std::min({forward, backward, weight}); }

/// Returns the least seconds added by `share`, beyond the cost of recomputing it in `agains`
/// micro-batches.
double ChainMixture::Counts::of(const WorkShare &share, double agains) const {
  double kept = forward * share.forward + backward * share.backward + weight * share.weight +
                least() * share.anyPhase;
  double again = (std::min(backward, weight) - agains) * share.moreBackward -
                 (forward - agains) * share.lessForward;
  return kept + std::min(0.0, again) - std::max(0.0, forward - agains) * share.foundForward -
         std::max(0.0, backward - agains) * share.foundBackward -
         std::max(0.0, weight - agains) * share.foundWeight;
}

namespace {

/// A set of chains, each with its seconds by chunk, as a matrix game. One player mixes the chains
/// and wants much work, the other shares the work out to the chunks and wants little.
class ChainGame {
public:
  explicit ChainGame(size_t numChunks) : numChunks(numChunks), byChunk(numChunks) {}

  /// `always`: seconds of the chain on no chunk. The shares add up to 1, so every chunk has them.
  void addChain(const std::vector<double> &seconds, double always) {
    byChain.push_back(seconds);
    for (size_t c = 0; c < numChunks; ++c) {
      byChain.back()[c] += always;
      byChunk[c].push_back(byChain.back()[c]);
    }
  }

  /// Plays some rounds; fewer if the game is large. `isFine`: ten times as many. Source: regret
  /// matching+ in turns with quadratic averages (Tammelin, "Solving Large Imperfect Information
  /// Games Using CFR+", 2014).
  void solve(bool isFine) {
    constexpr size_t mostProducts = 8'000'000, mostRounds = 500, leastRounds = 100;
    const size_t numChains = byChain.size(), times = isFine ? 10 : 1;
    const size_t rounds =
        std::clamp(times * mostProducts / (numChains * numChunks), leastRounds, times * mostRounds);
    weights.assign(numChains, 0);
    shares.assign(numChunks, 0);
    Player chains(numChains), chunks(numChunks);
    std::vector<double> gains(numChains), losses(numChunks);
    double total = 0;
    for (size_t round = 1; round <= rounds; ++round) {
      std::fill(gains.begin(), gains.end(), 0);
      for (size_t c = 0; c < numChunks; ++c)
        if (const double share = chunks.strategy[c]; share > 0)
          for (size_t i = 0; i < numChains; ++i)
            gains[i] += share * byChunk[c][i];
      chains.learn(gains, 1);
      std::fill(losses.begin(), losses.end(), 0);
      for (size_t i = 0; i < numChains; ++i)
        if (const double weight = chains.strategy[i]; weight > 0)
          for (size_t c = 0; c < numChunks; ++c)
            losses[c] += weight * byChain[i][c];
      chunks.learn(losses, -1);
      const double importance = double(round) * double(round);
      total += importance;
      for (size_t i = 0; i < numChains; ++i)
        weights[i] += importance * chains.strategy[i];
      for (size_t c = 0; c < numChunks; ++c)
        shares[c] += importance * chunks.strategy[c];
    }
    for (double &weight : weights)
      weight /= total;
    for (double &share : shares)
      share /= total;
  }

  std::vector<double> weights; // by chain; the sum is 1
  std::vector<double> shares;  // by chunk; the sum is 1

private:
  struct Player {
    explicit Player(size_t choices) : strategy(choices, 1.0 / double(choices)), regrets(choices) {}

    /// Prefers choices with large values (`sign` 1) or small ones (-1).
    void learn(const std::vector<double> &values, double sign) {
      const double mean = std::inner_product(values.begin(), values.end(), strategy.begin(), 0.0);
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i)
        sum += regrets[i] = std::max(0.0, regrets[i] + sign * (values[i] - mean));
      for (size_t i = 0; i < values.size(); ++i)
        strategy[i] = sum > 0 ? regrets[i] / sum : 1.0 / double(values.size());
    }

    std::vector<double> strategy, regrets;
  };

  const size_t numChunks;
  std::vector<std::vector<double>> byChain, byChunk; // the same seconds in both orders
};

} // namespace

ChainMixture::ChainMixture(const PipelineSchedule &schedule, const WorkShare &total,
                           double sendSeconds, bool isFine)
    : partsBackward(schedule::splitsBackward(schedule.kind)), most(infinity) {
  Chains chains(schedule);
  const size_t numChunks = schedule.pipeline.chunkStage.size();
  std::vector<std::vector<ChainCounts>> found; // by chain and chunk
  std::vector<int> sendsOf;                    // by chain
  ChainGame game(numChunks);
  std::vector<double> costs(numChunks), sums(numChunks, 0);
  // Adds a chain with its counts, in the costs of `total`.
  auto add = [&](std::vector<ChainCounts> counts, int sends) {
    sendsOf.push_back(sends);
    for (size_t c = 0; c < numChunks; ++c) {
      const auto &[forward, backward, last] = counts[c].actions;
      const double weight = partsBackward ? last : backward;
      costs[c] = forward * total.forward + backward * total.backward + weight * total.weight;
    }
    game.addChain(costs, sendSeconds * sends);
    found.push_back(std::move(counts));
  };
  auto addLongest = [&](const std::vector<double> &share) {
    std::vector<ChainCounts> counts(numChunks);
    const int sends = chains.addLongest(share, total, sendSeconds, counts);
    most = std::min(most, chains.seconds());
    add(std::move(counts), sends);
    for (size_t c = 0; c < numChunks; ++c)
      sums[c] += costs[c];
  };
  for (int chunk = 0; isFine && chunk < int(numChunks); ++chunk)
    for (bool staysThere : {false, true})
      if (partsBackward || !staysThere) {
        std::vector<ChainCounts> counts(numChunks);
        const int sends = chains.addThrough(chunk, staysThere, counts);
        add(std::move(counts), sends);
      }
  // Each stage once, a little longer than the others: with an equal cut many chains are as long,
  // and these pass all stages equally often.
  constexpr double longer = 1.1;
  for (int stage = 0; isFine && stage < schedule.pipeline.numStages; ++stage) {
    std::vector<double> share(numChunks, 1.0 / double(numChunks));
    for (size_t c = 0; c < numChunks; ++c)
      share[c] *= schedule.pipeline.chunkStage[c] == stage ? longer : 1;
    addLongest(share);
  }
  // The player who cuts puts more work on chunks with short chains so far: multiplicative weights,
  // with a falling rate.
  const int64_t mostActions = isFine ? 12'000'000 : 4'000'000;
  const int64_t mostRounds = isFine ? std::clamp<int64_t>(2 * int64_t(numChunks), 160, 480) : 80;
  const int64_t actions =
      std::max<int64_t>(1, int64_t(numChunks) * schedule.accumulation * (partsBackward ? 3 : 2));
  const int rounds = int(std::clamp<int64_t>(mostActions / actions, 60, mostRounds));
  std::vector<double> share(numChunks, 1.0 / double(numChunks));
  const double whole = total.forward + total.backward + total.weight;
  for (int round = 1; round <= rounds; ++round) {
    addLongest(share);
    const double rate = std::sqrt(8 * std::log(double(numChunks) + 1) / double(round)) /
                        (whole * double(schedule.accumulation));
    const double least = *std::min_element(sums.begin(), sums.end());
    double sum = 0;
    for (size_t c = 0; c < numChunks; ++c)
      sum += share[c] = std::exp(-rate * (sums[c] - least));
    for (double &s : share)
      s /= sum;
  }
  game.solve(isFine);
  addLongest(game.shares); // a short makespan, for `most`
  game.weights.push_back(0);
  chunks.resize(numChunks);
  for (size_t i = 0; i < found.size(); ++i) {
    numSends += game.weights[i] * sendsOf[i];
    for (size_t c = 0; c < numChunks; ++c) {
      const auto &[forward, backward, weight] = found[i][c].actions;
      chunks[c].sendsForward += game.weights[i] * found[i][c].sendsForward;
      chunks[c].sendsBackward += game.weights[i] * found[i][c].sendsBackward;
      chunks[c].forward += game.weights[i] * forward;
      chunks[c].backward += game.weights[i] * backward;
      chunks[c].weight += game.weights[i] * (partsBackward ? weight : backward);
    }
  }
}

/// Returns by kind and chunk the seconds added by one part there (Counts::of).
std::vector<double> ChainMixture::byKind(const WorkInOrder &work, double agains) const {
  std::vector<double> seconds;
  for (const WorkShare &kind : work.kinds)
    for (const Counts &chunk : chunks)
      seconds.push_back(chunk.of(kind, agains));
  return seconds;
}

/// Puts each part on its cheapest chunk.
double ChainMixture::anyhow(const WorkInOrder &work, const std::vector<double> &byKind) const {
  std::vector<double> least;
  for (size_t kind = 0; kind < work.kinds.size(); ++kind) {
    auto first = byKind.begin() + int64_t(kind * chunks.size());
    least.push_back(*std::min_element(first, first + int64_t(chunks.size())));
  }
  double total = 0;
  for (int kind : work.kindOf)
    total += least[size_t(kind)];
  return total;
}

/// Returns the minimum over all cuts, with their sends.
double ChainMixture::inOrder(const WorkInOrder &work, const std::vector<double> &byKind,
                             const SendSeconds &sends) const {
  // By chunk: the least seconds of the parts so far, if the last of them lies on it.
  std::vector<double> least(chunks.size(), infinity);
  least[0] = 0;
  for (size_t part = 0; part < work.kindOf.size(); ++part) {
    if (part > 0 && work.mayBegin[part]) {
      const double forward = sends.forwardTo(part), backward = sends.backwardFrom(part);
      for (size_t c = std::min(part, chunks.size() - 1); c > 0; --c)
        least[c] = std::min(least[c], least[c - 1] + chunks[c].sendsForward * forward +
                                          chunks[c - 1].sendsBackward * backward);
    }
    const double *seconds = &byKind[size_t(work.kindOf[part]) * chunks.size()];
    for (size_t c = 0; c < chunks.size(); ++c)
      least[c] += seconds[c];
  }
  return least.back();
}

double ChainMixture::leastSeconds(const WorkInOrder &work, double anywhere,
                                  const SendSeconds &sends, double againSeconds,
                                  bool isInOrder) const {
  double fewest = infinity, mean = 0;
  for (const Counts &chunk : chunks) {
    fewest = std::min(fewest, chunk.least());
    mean += (chunk.forward + chunk.backward) / 2 / double(chunks.size());
  }
  double best = -infinity; // without sends
  std::vector<double> bestByKind;
  for (double agains : {fewest, (fewest + mean) / 2, mean}) {
    std::vector<double> seconds = byKind(work, agains);
    double total = fewest * anywhere + agains * againSeconds + anyhow(work, seconds);
    if (total <= best)
      continue;
    best = total;
    bestByKind = std::move(seconds);
  }
  if (!isInOrder)
    return best + numSends * sends.least;
  // Only the seconds of the parts change.
  return best + inOrder(work, bestByKind, sends) - anyhow(work, bestByKind);
}

} // namespace tbc::planner

//===- Memory.cpp - What every stage holds, line by line -------------------===//

#include "planner/core/Memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

int64_t StageMemory::totalBytes() const {
  int64_t total = 0;
  for (const MemoryLine &line : lines)
    total += line.bytes;
  return total;
}

namespace {

/// Collects intervals of ops, per block, and sums them up.
class Liveness {
public:
  Liveness(const Graph &graph, const Assignment &assignment, const Derivation &derivation)
      : graph(graph), assignment(assignment), derivation(derivation), position(graph.ops.size()) {
    for (int op = 0; op < int(graph.ops.size()); ++op) {
      std::vector<int> &block = blocks[{graph.ops[op].chunk, graph.ops[op].phase}];
      position[op] = int(block.size());
      block.push_back(op);
    }
  }

  LiveBytes run() {
    live.transients.assign(graph.ops.size(), 0);
    live.gathered.assign(graph.ops.size(), 0);
    live.buffers.assign(graph.ops.size(), 0);
    for (const Residual &residual : derivation.residuals)
      kept[{residual.value, residual.chunk}] = residual.sharding;
    addValues();
    addReshards();
    addBlocks();
    return std::move(live);
  }

private:
  using Block = std::pair<int, Phase>; // chunk and phase

  Block blockOf(int op) const { return {graph.ops[op].chunk, graph.ops[op].phase}; }

  double bytes(int value, const Sharding &sharding) const {
    return double(localBytes(graph.values[value].layout, sharding));
  }

  /// `amount` is live from position `first` to position `last` of a block.
  void add(std::vector<double> &into, const Block &block, int first, int last, double amount) {
    const std::vector<int> &ops = blocks.at(block);
    for (int at = first; at <= last; ++at)
      into[ops[at]] += amount;
  }

  /// Whether the block has `value` from a residual, or makes one of it.
  bool isKept(int value, const Block &block, const Sharding &sharding) const {
    int holder = holderOf(graph, assignment, value, block.first);
    if (block != Block(holder, phaseHeld(graph, assignment, value, holder)))
      return true;
    auto found = kept.find({value, holder});
    return found != kept.end() && found->second == sharding;
  }

  void addValues() {
    for (int value = 0; value < int(graph.values.size()); ++value) {
      const GraphValue &graphValue = graph.values[value];
      if (graphValue.producer < 0)
        continue; // parameters, state and inputs have lines of their own
      std::map<Block, std::pair<int, int>> spans; // first and last position per block
      Block home = blockOf(graphValue.producer);
      spans[home] = {position[graphValue.producer], position[graphValue.producer]};
      bool generated = graph.ops[graphValue.producer].generator;
      for (int user : graphValue.users) {
        auto [found, isNew] = spans.emplace(
            blockOf(user), std::make_pair(generated ? position[user] : 0, position[user]));
        if (!isNew)
          found->second.second = std::max(found->second.second, position[user]);
      }
      double amount = bytes(value, derivation.home[value]);
      double raw = bytes(value, derivation.raw[value]);
      for (const auto &[block, span] : spans) {
        // What is kept from one block to another is a residual in both.
        if (!generated && isKept(value, block, derivation.home[value]))
          continue;
        add(live.transients, block, span.first, span.second, amount);
      }
      if (raw > amount)
        live.transients[graphValue.producer] += raw - amount;
    }
  }

  /// An op that takes blocks one by one holds the next one while it works on this one, and a
  /// partial result beside the sum of those before.
  void addBlocks() {
    for (int op = 0; op < int(graph.ops.size()); ++op) {
      const GraphOp &graphOp = graph.ops[op];
      const OpStrategy &strategy = assignment.strategies[op];
      if (streamedBlocks(graph, op, strategy) == 1)
        continue;
      for (size_t k = 0; k < graphOp.operands.size(); ++k)
        if (streams(graphOp, strategy, &Loop::operandDims, int(k)))
          live.buffers[op] +=
              bytes(graphOp.operands[k], operandSharding(graph, op, strategy, int(k)));
      for (size_t r = 0; r < graphOp.results.size(); ++r)
        live.buffers[op] += bytes(graphOp.results[r], derivation.raw[graphOp.results[r]]);
    }
  }

  static bool streams(const GraphOp &op, const OpStrategy &strategy,
                      std::vector<TensorDim> Loop::*dims, int tensor) {
    for (const auto &[loop, axes] : strategy.loopAxes)
      for (const TensorDim &dim : op.loops[loop].*dims)
        if (op.loops[loop].kind == LoopKind::Streamed && dim.tensor == tensor)
          return true;
    return false;
  }

  void addReshards() {
    std::vector<int> lastUse(derivation.reshards.size(), -1);
    for (int op = 0; op < int(graph.ops.size()); ++op)
      for (const Derivation::Operand &operand : derivation.operands[op])
        if (operand.reshard >= 0)
          lastUse[operand.reshard] = op;
    std::map<int, const ParameterPlan *> planOf;
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      planOf[graph.parameters[p].value] = &assignment.parameterPlans[p];

    // With keepGathered a parameter is gathered in the forward and stays, per stage, to the last
    // use.
    for (size_t i = 0; i < derivation.reshards.size(); ++i) {
      const Reshard &reshard = derivation.reshards[i];
      if (reshard.where != Where::Operand && reshard.where != Where::ParameterUse)
        continue;
      int first = reshard.op;
      if (first < 0)
        continue; // a completion after the producer: in the value's home
      double amount = bytes(reshard.value, reshard.to);
      Block block = blockOf(first);
      if (reshard.where == Where::ParameterUse) {
        auto plan = planOf.find(reshard.value);
        bool keep = plan != planOf.end() && plan->second->keepGathered;
        addGathered(block, position[first], lastUse[i], keep, amount);
        continue;
      }
      auto found = kept.find({reshard.value, reshard.chunk});
      if (found != kept.end() && found->second == reshard.to &&
          reshard.phase == phaseHeld(graph, assignment, reshard.value, reshard.chunk))
        continue;
      int last =
          lastUse[i] >= 0 && blockOf(lastUse[i]) == block ? position[lastUse[i]] : position[first];
      add(live.buffers, block, position[first], last, amount);
    }
  }

  void addGathered(const Block &block, int first, int lastUse, bool keep, double amount) {
    auto lengthOf = [&](const Block &b) {
      auto found = blocks.find(b);
      return found == blocks.end() ? 0 : int(found->second.size());
    };
    if (!keep) {
      int last = lastUse >= 0 && blockOf(lastUse) == block ? position[lastUse] : first;
      add(live.gathered, block, first, last, amount);
      return;
    }
    add(live.gathered, block, first, lengthOf(block) - 1, amount);
    for (Phase phase : {Phase::Backward, Phase::Weight}) {
      Block later{block.first, phase};
      if (block.second == Phase::Forward && lengthOf(later) > 0)
        add(live.gathered, later, 0, lengthOf(later) - 1, amount);
    }
  }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  std::map<Block, std::vector<int>> blocks;
  std::vector<int> position;
  std::map<std::pair<int, int>, Sharding> kept; // by value and stage
  LiveBytes live;
};

} // namespace

LiveBytes liveBytes(const Graph &graph, const Assignment &assignment,
                    const Derivation &derivation) {
  return Liveness(graph, assignment, derivation).run();
}

namespace {

/// Residuals that the same block keeps for the same blocks.
struct Keeping {
  std::pair<int, Phase> writer;
  std::set<std::pair<int, Phase>> readers;
  bool operator<(const Keeping &o) const {
    return std::tie(writer, readers) < std::tie(o.writer, o.readers);
  }
};

schedule::Action::Kind kindOf(Phase phase) {
  return phase == Phase::Forward    ? schedule::Action::Kind::Forward
         : phase == Phase::Backward ? schedule::Action::Kind::Backward
                                    : schedule::Action::Kind::Weight;
}

/// The bytes of one micro-batch, by who keeps them for whom.
std::map<Keeping, double> keptBytes(const Graph &graph, const Assignment &assignment,
                                    const Derivation &derivation) {
  std::map<Keeping, double> bytes;
  for (const Residual &residual : derivation.residuals) {
    if (graph.values[residual.value].producer < 0)
      continue; // inputs and gathered parameters have lines of their own
    Keeping keeping{{residual.chunk, residual.phase}, {}};
    for (int user : graph.values[residual.value].users) {
      const GraphOp &op = graph.ops[user];
      bool readsIt = !derivation.operands[user].empty() && !op.generator &&
                     assignment.stageOf(op.chunk) == assignment.stageOf(residual.chunk) &&
                     holderOf(graph, assignment, residual.value, op.chunk) == residual.chunk;
      if (readsIt)
        keeping.readers.insert({op.chunk, op.phase});
    }
    for (const Transfer &transfer : derivation.transfers)
      if (transfer.value == residual.value && transfer.fromChunk == residual.chunk)
        keeping.readers.insert({transfer.fromChunk, transfer.phase});
    keeping.readers.erase(keeping.writer);
    bytes[keeping] += double(localBytes(graph.values[residual.value].layout, residual.sharding));
  }
  return bytes;
}

} // namespace

std::vector<double> residualPeaks(const Graph &graph, const Assignment &assignment,
                                  const Derivation &derivation, const StageActions &actions) {
  std::vector<double> peaks(assignment.numStages, 0);
  std::map<Keeping, double> bytes = keptBytes(graph, assignment, derivation);
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    schedule::Pipeline pipeline{assignment.numStages, assignment.chunkStage};
    if (assignment.chunkStage.empty())
      pipeline = schedule::Pipeline::plain(assignment.numStages);
    std::vector<int> chunks = pipeline.chunksOf(stage);
    // Per block of the stage: what it makes, and what it reads of others, by number.
    struct Group {
      double bytes = 0;
      std::map<int64_t, size_t> left; // readers to come, by micro-batch
      size_t readers = 0;
    };
    std::vector<Group> groups;
    using BlockKey = std::pair<int, schedule::Action::Kind>;
    std::map<BlockKey, std::vector<size_t>> written, read;
    for (const auto &[keeping, amount] : bytes) {
      auto place = std::find(chunks.begin(), chunks.end(), keeping.writer.first);
      if (place == chunks.end() || keeping.readers.empty())
        continue;
      auto key = [&](const std::pair<int, Phase> &block) {
        auto at = std::find(chunks.begin(), chunks.end(), block.first);
        return BlockKey(int(at - chunks.begin()), kindOf(block.second));
      };
      written[key(keeping.writer)].push_back(groups.size());
      for (const auto &reader : keeping.readers)
        read[key(reader)].push_back(groups.size());
      groups.push_back({amount, {}, keeping.readers.size()});
    }
    double live = 0;
    for (const schedule::Action &action : actions[stage]) {
      BlockKey block(action.chunk, action.kind);
      for (size_t group : written[block]) {
        live += groups[group].bytes;
        groups[group].left[action.microBatch] = groups[group].readers;
      }
      peaks[stage] = std::max(peaks[stage], live);
      for (size_t group : read[block])
        if (--groups[group].left[action.microBatch] == 0)
          live -= groups[group].bytes;
    }
  }
  return peaks;
}

int64_t mostMicroBatches(const std::vector<schedule::Action> &actions) {
  std::map<int64_t, int64_t> left; // actions to come, by micro-batch
  for (const schedule::Action &action : actions)
    left[action.microBatch] += action.kind != schedule::Action::Kind::Update;
  std::map<int64_t, int64_t> all = left;
  int64_t now = 0, most = 0;
  for (const schedule::Action &action : actions) {
    if (action.kind == schedule::Action::Kind::Update)
      continue;
    now += left[action.microBatch] == all[action.microBatch];
    most = std::max(most, now);
    now -= --left[action.microBatch] == 0;
  }
  return most;
}

std::vector<StaticBytes> staticBytes(const Graph &graph, const Assignment &assignment,
                                     const Derivation &derivation, const Job &job) {
  std::vector<StaticBytes> stages(assignment.numStages);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    double stored = double(localBytes(layout, derivation.stored[p]));
    double owned = double(localBytes(layout, derivation.state[p])) / double(layout.elementBytes);
    for (int stage : derivation.parameterStages[p]) {
      stages[stage].parameters += stored;
      if (parameter.gradient < 0)
        continue; // frozen: neither gradient nor state
      const TensorLayout &gradient = graph.values[parameter.gradient].layout;
      for (const GradientParts::Part &part : derivation.gradientParts[p].parts)
        if (assignment.stageOf(part.chunk) == stage) {
          stages[stage].gradients += double(localBytes(gradient, derivation.gradient[p]));
          break;
        }
      stages[stage].master += owned * double(masterBytes(layout.elementBytes));
      stages[stage].state += owned * double(job.stateBytesPerElement());
    }
  }
  for (StaticBytes &stage : stages)
    stage.state += double(graph.stepStateBytes);
  for (size_t value = 0; value < graph.values.size(); ++value) {
    const GraphValue &graphValue = graph.values[value];
    if (graphValue.producer >= 0 || graphValue.role == ValueRole::Parameter ||
        graphValue.role == ValueRole::OptimizerState)
      continue;
    std::set<int> users;
    for (int user : graphValue.users)
      users.insert(assignment.stageOf(graph.ops[user].chunk));
    if (users.empty() && graphValue.role == ValueRole::State)
      users.insert(0); // part of the model all the same
    double bytes = double(localBytes(graphValue.layout, derivation.home[value]));
    for (int stage : users)
      (graphValue.role == ValueRole::State ? stages[stage].modelState : stages[stage].inputs) +=
          bytes;
  }
  return stages;
}

StageMemory memoryLines(const Cluster &cluster, const StaticBytes &fixed, double residuals,
                        int64_t inFlight, double transients, double gathered, double buffers) {
  StageMemory memory;
  double owned = 0;
  auto add = [&](const char *name, double bytes) {
    memory.lines.push_back({name, int64_t(std::ceil(bytes))});
    owned += bytes;
  };
  add("parameters", fixed.parameters);
  add("master weights", fixed.master);
  add("gradients", fixed.gradients);
  add("optimizer state", fixed.state);
  add("model state", fixed.modelState);
  add("inputs", fixed.inputs * double(inFlight));
  add("saved residuals", residuals);
  add("transients", transients);
  add("gathered parameters", gathered);
  add("collective buffers", buffers);
  memory.lines.push_back({"device context", cluster.contextBytes});
  memory.lines.push_back(
      {"allocator margin", int64_t(std::ceil(cluster.allocatorFraction * owned))});
  return memory;
}

std::vector<StageMemory> stageMemory(const Graph &graph, const Assignment &assignment,
                                     const Derivation &derivation, const Job &job,
                                     const Cluster &cluster, const StageActions &actions) {
  LiveBytes live = liveBytes(graph, assignment, derivation);
  std::vector<double> residuals = residualPeaks(graph, assignment, derivation, actions);
  std::vector<StaticBytes> fixed = staticBytes(graph, assignment, derivation, job);
  std::vector<int> peak(assignment.numStages, -1);
  auto total = [&](int op) { return live.transients[op] + live.gathered[op] + live.buffers[op]; };
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    int &best = peak[assignment.stageOf(graph.ops[op].chunk)];
    if (best < 0 || total(op) > total(best))
      best = op;
  }
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    int op = peak[stage];
    stages.push_back(memoryLines(cluster, fixed[stage], residuals[stage],
                                 mostMicroBatches(actions[stage]), op < 0 ? 0 : live.transients[op],
                                 op < 0 ? 0 : live.gathered[op], op < 0 ? 0 : live.buffers[op]));
  }
  return stages;
}

} // namespace tbc::planner

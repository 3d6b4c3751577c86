//===- Memory.cpp - What every stage holds, line by line -------------------===//

#include "planner/core/Memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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
      std::vector<int> &block = blocks[{graph.ops[op].stage, graph.ops[op].phase}];
      position[op] = int(block.size());
      block.push_back(op);
    }
  }

  LiveBytes run() {
    live.transients.assign(graph.ops.size(), 0);
    live.gathered.assign(graph.ops.size(), 0);
    live.buffers.assign(graph.ops.size(), 0);
    for (const Residual &residual : derivation.residuals)
      kept[{residual.value, residual.stage}] = residual.sharding;
    addValues();
    addReshards();
    return std::move(live);
  }

private:
  using Block = std::pair<int, Phase>;

  Block blockOf(int op) const { return {graph.ops[op].stage, graph.ops[op].phase}; }

  double bytes(int value, const Sharding &sharding) const {
    return double(localBytes(graph.values[value].layout, sharding));
  }

  /// `amount` is live from position `first` to position `last` of a block.
  void add(std::vector<double> &into, const Block &block, int first, int last, double amount) {
    const std::vector<int> &ops = blocks.at(block);
    for (int at = first; at <= last; ++at)
      into[ops[at]] += amount;
  }

  bool isKept(int value, int stage, const Sharding &sharding) const {
    auto found = kept.find({value, stage});
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
        // What is kept from forward to backward is a residual in both.
        bool residual = isKept(value, block.first, derivation.home[value]);
        bool fromForward = graph.ops[graphValue.producer].phase == Phase::Forward &&
                           block.second == Phase::Backward && !generated;
        if (residual || (fromForward && block.first == home.first))
          continue;
        add(live.transients, block, span.first, span.second, amount);
      }
      if (raw > amount)
        live.transients[graphValue.producer] += raw - amount;
    }
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
      if (block.second == Phase::Forward && isKept(reshard.value, reshard.stage, reshard.to))
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
    Block backward{block.first, Phase::Backward};
    if (block.second == Phase::Forward && lengthOf(backward) > 0)
      add(live.gathered, backward, 0, lengthOf(backward) - 1, amount);
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

std::vector<double> residualBytes(const Graph &graph, int numStages, const Derivation &derivation) {
  std::vector<double> bytes(numStages, 0);
  for (const Residual &residual : derivation.residuals)
    if (graph.values[residual.value].producer >= 0)
      bytes[residual.stage] +=
          double(localBytes(graph.values[residual.value].layout, residual.sharding));
  return bytes;
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
      stages[stage].gradients += double(localBytes(gradient, derivation.gradient[p]));
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
      users.insert(graph.ops[user].stage);
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
  add("saved residuals", residuals * double(inFlight));
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
                                     const Cluster &cluster, const std::vector<int64_t> &inFlight) {
  LiveBytes live = liveBytes(graph, assignment, derivation);
  std::vector<double> residuals = residualBytes(graph, assignment.numStages, derivation);
  std::vector<StaticBytes> fixed = staticBytes(graph, assignment, derivation, job);
  std::vector<int> peak(assignment.numStages, -1);
  auto total = [&](int op) { return live.transients[op] + live.gathered[op] + live.buffers[op]; };
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    int &best = peak[graph.ops[op].stage];
    if (best < 0 || total(op) > total(best))
      best = op;
  }
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    int op = peak[stage];
    stages.push_back(memoryLines(cluster, fixed[stage], residuals[stage], inFlight[stage],
                                 op < 0 ? 0 : live.transients[op], op < 0 ? 0 : live.gathered[op],
                                 op < 0 ? 0 : live.buffers[op]));
  }
  return stages;
}

} // namespace tbc::planner

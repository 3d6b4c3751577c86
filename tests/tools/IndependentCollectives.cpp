//===- IndependentCollectives.cpp - What a step must communicate -------------===//
//
// The step is walked block by block as a rank would run it, with a table of what is at hand: an
// operand that is not there in the placement its op wants must be brought there.
//
//===----------------------------------------------------------------------===//

#include "tests/tools/IndependentCollectives.h"

#include "tests/tools/TensorMoves.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>

using namespace tbc::reshard;

namespace tbc::test {

namespace {

[[noreturn]] void beyond(const std::string &what) {
  std::fprintf(stderr, "expectedSignature: %s\n", what.c_str());
  std::abort();
}

/// Executions by kind, axes, stage and bytes.
using Lines = std::map<std::tuple<CollectiveKind, std::string, int, int64_t>, int64_t>;

std::vector<CollectiveCount> asList(const Lines &lines) {
  std::vector<CollectiveCount> result;
  for (const auto &[key, count] : lines) {
    CollectiveCount line{};
    std::tie(line.kind, line.axes, line.stage, line.bytes) = key;
    line.count = count;
    result.push_back(line);
  }
  return result;
}

std::string axesText(const Mesh &mesh, const std::vector<int> &axes) {
  std::string text;
  for (int axis : axes)
    text += (text.empty() ? "" : "+") + mesh.axes[axis].name;
  return text;
}

/// What is known of a parameter before the walk.
struct ParameterPlaces {
  Placement home, stored, accumulated, state;
  std::vector<int> zeroAxes;              // without those that split the home
  std::vector<int> stages;                // that hold a copy
  std::vector<std::pair<int, int>> parts; // of the gradient: chunk, value
};

class StepWalk {
public:
  StepWalk(const Graph &graph, const Assignment &assignment, int64_t bucketBytes)
      : graph(graph), assignment(assignment), bucketBytes(bucketBytes), moves(assignment.mesh),
        skipped(graph.ops.size(), false), raw(graph.values.size()), home(graph.values.size()),
        isPart(graph.values.size(), false), parameterOf(graph.values.size(), -1),
        parameters(graph.parameters.size()) {}

  StepSignature run(int64_t stateBytesPerElement) {
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      findParts(p);
    findUsers();
    placeInputs();
    placeResults();
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      placeParameter(p);
    for (int op = 0; op < int(graph.ops.size()); ++op)
      if (!skipped[op])
        execute(op);
    sends();
    update();
    joinReductions();
    return signature(stateBytesPerElement);
  }

private:
  struct Use {
    int op, operand;
  };

  // What the strategies say.

  std::vector<int> axisNumbers(const std::vector<AxisRef> &axes) const {
    std::vector<int> result;
    for (const AxisRef &axis : axes) {
      int64_t whole = assignment.mesh.axes[axis.axis].size;
      if (axis.pre != 1 || axis.size != whole)
        beyond("part of an axis");
      if (whole > 1)
        result.push_back(axis.axis);
    }
    return result;
  }

  template <typename Function> void forEachSplitLoop(int op, Function function) const {
    for (const auto &[number, axes] : assignment.strategies[op].loopAxes) {
      std::vector<int> whole = axisNumbers(axes);
      if (!whole.empty())
        function(graph.ops[op].loops[number], whole);
    }
  }

  Placement wanted(int op, int operand) const {
    Placement placement;
    if (graph.ops[op].generator)
      return placement;
    forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
      for (const TensorDim &at : loop.operandDims)
        if (at.tensor == operand)
          placement.split[{at.dim, loop.factor}] = axes;
    });
    return placement;
  }

  Placement produced(int op, int result) const {
    Placement placement;
    if (graph.ops[op].generator)
      return placement;
    forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
      bool present = false;
      for (const TensorDim &at : loop.resultDims)
        if (at.tensor == result) {
          placement.split[{at.dim, loop.factor}] = axes;
          present = true;
        }
      if (present || loop.kind == LoopKind::Parallel || loop.kind == LoopKind::Fixed ||
          loop.kind == LoopKind::Streamed)
        return;
      for (int axis : axes)
        if (!goesRound(op, result, axis)) // else it is summed on its way
          placement.pending[axis] = loop.kind == LoopKind::Max ? ReduceKind::Max : ReduceKind::Sum;
    });
    return placement;
  }

  // Rings: what lies along a streamed loop goes round its axes.

  static bool isAlong(const std::vector<TensorDim> &dims, int tensor) {
    return std::any_of(dims.begin(), dims.end(),
                       [&](const TensorDim &dim) { return dim.tensor == tensor; });
  }
  bool goesRound(int op, int result, int axis) const {
    bool round = false;
    forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
      round |= loop.kind == LoopKind::Streamed && isAlong(loop.resultDims, result) &&
               std::count(axes.begin(), axes.end(), axis) > 0;
    });
    return round;
  }
  /// Operands stop where they would come home, results go home.
  void sendRound(int op) {
    const GraphOp &node = graph.ops[op];
    int stage = stageOf(node.chunk);
    forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
      if (loop.kind != LoopKind::Streamed)
        return;
      auto add = [&](int value, const Placement &placement, int64_t times) {
        addLine(CollectiveKind::Permute, axesText(assignment.mesh, axes), stage,
                moves.localBytes(graph.values[value].layout, placement),
                times * assignment.microBatches);
      };
      int64_t ranks = moves.ranks(axes);
      for (int i = 0; i < int(node.operands.size()); ++i)
        if (isAlong(loop.operandDims, i) && !isGenerated(node.operands[i]))
          add(node.operands[i], wanted(op, i), ranks - 1);
      for (int i = 0; i < int(node.results.size()); ++i)
        if (isAlong(loop.resultDims, i))
          add(node.results[i], produced(op, i), ranks);
    });
  }

  // Gradients.

  /// The chunks whose work is summed up in `value`, looking through sums of cotangents.
  std::set<int> contributors(int value) const {
    int producer = graph.values[value].producer;
    if (!isCotangentSum(producer))
      return {graph.ops[producer].chunk};
    std::set<int> stages;
    for (int operand : graph.ops[producer].operands)
      stages.merge(contributors(operand));
    return stages;
  }
  bool isCotangentSum(int op) const {
    const GraphOp &sum = graph.ops[op];
    if (sum.phase == Phase::Forward || !sum.additive || sum.operands.size() != 2)
      return false;
    return std::all_of(sum.operands.begin(), sum.operands.end(),
                       [&](int operand) { return graph.values[operand].users.size() == 1; });
  }
  /// Whether something wants the sum whole: another op, or (of an operand of a sum) a parameter.
  bool isWantedWhole(int value, bool isOperand) const {
    bool isGradient =
        std::any_of(graph.parameters.begin(), graph.parameters.end(),
                    [&](const GraphParameter &parameter) { return parameter.gradient == value; });
    return isOperand ? isGradient : !graph.values[value].users.empty();
  }
  void splitParts(int value, std::vector<std::pair<int, int>> &parts, bool isOperand = false) {
    int producer = graph.values[value].producer;
    if (contributors(value).size() == 1 || isWantedWhole(value, isOperand)) {
      parts.push_back({graph.ops[producer].chunk, value});
      isPart[value] = true;
      return;
    }
    skipped[producer] = true;
    for (int operand : graph.ops[producer].operands)
      splitParts(operand, parts, true);
  }
  void findParts(size_t p) {
    const GraphParameter &parameter = graph.parameters[p];
    parameterOf[parameter.value] = int(p);
    if (parameter.gradient >= 0)
      splitParts(parameter.gradient, parameters[p].parts);
  }

  // Homes.

  void findUsers() {
    uses.resize(graph.values.size());
    for (int op = 0; op < int(graph.ops.size()); ++op)
      if (!skipped[op])
        for (int i = 0; i < int(graph.ops[op].operands.size()); ++i)
          uses[graph.ops[op].operands[i]].push_back({op, i});
  }

  void placeInputs() {
    for (size_t value = 0; value < graph.values.size(); ++value) {
      if (graph.values[value].producer >= 0)
        continue;
      std::vector<std::pair<Placement, int>> votes;
      for (const Use &use : uses[value]) {
        Placement placement = wanted(use.op, use.operand);
        auto vote = std::find_if(votes.begin(), votes.end(),
                                 [&](const auto &v) { return v.first == placement; });
        if (vote == votes.end())
          votes.push_back({placement, 1});
        else
          ++vote->second;
      }
      int best = 0;
      for (const auto &[placement, count] : votes)
        if (count > best) {
          best = count;
          home[value] = placement;
        }
    }
  }

  bool sameBlock(int a, int b) const {
    return graph.ops[a].chunk == graph.ops[b].chunk && graph.ops[a].phase == graph.ops[b].phase;
  }

  /// What an additive op's operands are all pending over, if it can add them up as they are.
  std::map<int, ReduceKind> deferred(int op) const {
    const GraphOp &sum = graph.ops[op];
    if (!sum.additive || sum.operands.empty())
      return {};
    std::map<int, ReduceKind> pending = raw[sum.operands[0]].pending;
    for (int i = 0; i < int(sum.operands.size()); ++i) {
      int operand = sum.operands[i], producer = graph.values[operand].producer;
      if (producer < 0 || !sameBlock(producer, op) || raw[operand].pending != pending ||
          isPart[operand])
        return {};
      for (const Use &use : uses[operand])
        if (use.op != op)
          return {};
      for (const auto &[axis, kind] : pending)
        if (kind != ReduceKind::Sum || test::uses(wanted(op, i), axis))
          return {};
    }
    // Repeated along an axis, a partial sum would be none any more.
    for (int i = 0; i < int(sum.results.size()); ++i)
      for (const auto &[axis, kind] : pending)
        if (test::uses(produced(op, i), axis))
          return {};
    return pending;
  }

  void placeResults() {
    std::map<int, int> stateOf; // new value -> input
    for (auto [input, next] : graph.stateUpdates)
      stateOf[next] = input;
    takesOn.resize(graph.ops.size());
    for (int op = 0; op < int(graph.ops.size()); ++op) {
      takesOn[op] = deferred(op);
      for (int result = 0; result < int(graph.ops[op].results.size()); ++result) {
        int value = graph.ops[op].results[result];
        raw[value] = produced(op, result);
        raw[value].pending.insert(takesOn[op].begin(), takesOn[op].end());
      }
    }
    for (size_t value = 0; value < graph.values.size(); ++value) {
      if (graph.values[value].producer < 0)
        continue;
      if (stateOf.count(int(value)))
        home[value] = home[stateOf.at(int(value))];
      else
        home[value] = completed(int(value));
    }
  }

  Placement completed(int value) const {
    Placement placement = raw[value];
    if (placement.pending.empty() || uses[value].empty() || !takesOn[uses[value][0].op].empty())
      return placement;
    placement.pending.clear();
    std::map<int, ReduceKind> rest = raw[value].pending;
    for (bool found = true; found;) {
      found = false;
      for (const auto &[axis, kind] : rest) {
        auto place = commonPlace(value, placement, axis);
        if (!place || kind != ReduceKind::Sum)
          continue;
        placement.split[*place].push_back(axis);
        rest.erase(axis);
        found = true;
        break;
      }
    }
    return placement;
  }

  /// The place where all users want the axis right after those that are there.
  std::optional<Place> commonPlace(int value, const Placement &have, int axis) const {
    std::optional<Place> common;
    for (const Use &use : uses[value]) {
      std::optional<Place> here;
      for (const auto &[place, axes] : wanted(use.op, use.operand).split) {
        auto at = have.split.find(place);
        std::vector<int> grown = at == have.split.end() ? std::vector<int>() : at->second;
        grown.push_back(axis);
        if (grown.size() <= axes.size() && std::equal(grown.begin(), grown.end(), axes.begin()))
          here = place;
      }
      if (!here || (common && *common != *here))
        return std::nullopt;
      common = here;
    }
    return common;
  }

  void placeParameter(size_t p) {
    ParameterPlaces &places = parameters[p];
    const ParameterPlan &plan = assignment.parameterPlans[p];
    const GraphParameter &parameter = graph.parameters[p];
    places.home = places.stored = places.state = places.accumulated = home[parameter.value];
    for (int axis : axisNumbers(plan.zeroAxes))
      if (!test::uses(places.home, axis))
        places.zeroAxes.push_back(axis);
    if (plan.zero >= 3)
      places.stored.flat = places.zeroAxes;
    if (plan.zero >= 1)
      places.state.flat = places.zeroAxes;
    // One part of one micro-batch is the whole gradient: nothing waits for the update.
    bool isWhole =
        places.parts.size() == 1 && assignment.microBatches == 1 && assignment.numStages == 1;
    if (plan.zero >= 2 || (plan.zero == 1 && isWhole))
      places.accumulated.flat = places.zeroAxes;
    std::set<int> stages;
    for (const Use &use : uses[parameter.value])
      stages.insert(stageOf(graph.ops[use.op].chunk));
    for (auto [chunk, part] : places.parts)
      stages.insert(stageOf(chunk));
    places.stages.assign(stages.begin(), stages.end());
    if (stages.empty())
      places.stages = {0};
    // Completed once per step: data axes over which every part is a partial sum.
    if (!places.parts.empty() && !isWhole)
      for (const auto &[axis, kind] : home[places.parts[0].second].pending) {
        bool isLate = (names(axisNumbers(plan.zeroAxes), axis) ||
                       names(axisNumbers(plan.reduceAxes), axis)) &&
                      !names(places.accumulated.flat, axis);
        for (auto [chunk, part] : places.parts)
          isLate &= home[part].pending.count(axis) != 0;
        if (isLate)
          places.accumulated.pending[axis] = kind;
      }
  }

  // The walk.

  void addLine(CollectiveKind kind, const std::string &axes, int stage, int64_t bytes,
               int64_t count) {
    lines[{kind, axes, stage, bytes}] += count;
  }
  void move(int value, const Placement &from, const Placement &to, int stage, int64_t count) {
    if (from == to)
      return;
    auto [change, possible] = waysOf(value, from, to);
    size_t number = possible.size();
    for (size_t way = 0; way < number; ++way)
      for (const Message &message : possible[way]) {
        auto &list = number == 1 ? lines : ties[change].try_emplace(way).first->second;
        list[{message.kind, axesText(assignment.mesh, message.axes), stage, message.bytes}] +=
            count;
      }
    explain(value, from, to, stage, possible);
  }
  std::pair<std::string, const std::vector<Messages> &> waysOf(int value, const Placement &from,
                                                               const Placement &to) {
    const TensorLayout &layout = graph.values[value].layout;
    std::string change = layoutText(layout) + describe(from) + " to " + describe(to);
    auto known = ways.find(change);
    if (known == ways.end())
      known = ways.emplace(change, moves.cheapest(layout, from, to)).first;
    return {change, known->second};
  }

  // Buckets: reductions of gradients that wait for each other.

  struct Reduction {
    int value, stage, chunk; // chunk -1: in the update
    Phase phase;
    Placement from, to;
    int64_t count;
  };
  /// What a reduction has in common with those that it may go with.
  using Kin = std::tuple<int, int, Phase, int64_t,
                         std::vector<std::pair<CollectiveKind, std::vector<int>>>>;

  bool mayWait(const Reduction &reduction) {
    const Messages &messages = waysOf(reduction.value, reduction.from, reduction.to).second.front();
    for (const auto &[key, placement] : keptAs)
      if (reduction.chunk >= 0 && key.first == reduction.value && placement == reduction.to)
        return false;
    if (reduction.chunk >= 0 &&
        readReductions.count({reduction.value, reduction.chunk, reduction.phase, reduction.to}))
      return false;
    return !messages.empty() &&
           std::all_of(messages.begin(), messages.end(), [&](const Message &message) {
             bool toChunks = message.kind == CollectiveKind::ReduceScatter &&
                             reduction.from.flat.empty() &&
                             std::all_of(message.axes.begin(), message.axes.end(),
                                         [&](int axis) { return names(reduction.to.flat, axis); });
             return message.kind == CollectiveKind::AllReduce || toChunks;
           });
  }

  void joinReductions() {
    struct Waiting {
      int64_t bytes = 0;
      std::vector<const Reduction *> members;
    };
    std::map<Kin, Waiting> waiting;
    for (const Reduction &reduction : reductions) {
      if (!mayWait(reduction)) {
        move(reduction.value, reduction.from, reduction.to, reduction.stage, reduction.count);
        continue;
      }
      Kin kin{reduction.stage,
              reduction.chunk,
              reduction.phase,
              graph.values[reduction.value].layout.elementBytes,
              {}};
      int64_t largest = 0;
      for (const Message &message :
           waysOf(reduction.value, reduction.from, reduction.to).second.front()) {
        std::get<4>(kin).push_back({message.kind, message.axes});
        largest = std::max(largest, message.bytes);
      }
      Waiting &here = waiting[kin];
      if (here.bytes + largest > bucketBytes) {
        reduceTogether(here.members);
        here = {};
      }
      here.members.push_back(&reduction);
      here.bytes += largest;
    }
    for (const auto &[kin, last] : waiting)
      reduceTogether(last.members);
  }

  void reduceTogether(const std::vector<const Reduction *> &members) {
    if (members.size() == 1)
      move(members[0]->value, members[0]->from, members[0]->to, members[0]->stage,
           members[0]->count);
    if (members.size() < 2)
      return;
    Messages sum;
    for (const Reduction *member : members) {
      const std::vector<Messages> &possible =
          waysOf(member->value, member->from, member->to).second;
      explain(member->value, member->from, member->to, member->stage, possible);
      for (size_t i = 0; i < possible.front().size(); ++i)
        if (i == sum.size())
          sum.push_back(possible.front()[i]);
        else
          sum[i].bytes += possible.front()[i].bytes;
    }
    for (const Message &message : sum)
      addLine(message.kind, axesText(assignment.mesh, message.axes), members[0]->stage,
              message.bytes, members[0]->count);
  }
  void explain(int value, const Placement &from, const Placement &to, int stage,
               const std::vector<Messages> &possible) {
    std::string text = "\"" + graph.values[value].name + "\" on stage " + std::to_string(stage) +
                       " from " + describe(from) + " to " + describe(to) + ":";
    for (const Message &message : possible.front())
      text += std::string(" ") + name(message.kind) + "(" +
              axesText(assignment.mesh, message.axes) + ", " + std::to_string(message.bytes) + ")";
    explained.push_back(text + (possible.size() > 1 ? " or equally cheap" : ""));
  }
  static std::string layoutText(const TensorLayout &layout) {
    std::string text = std::to_string(layout.elementBytes);
    for (const DimLayout &dim : layout.dims) {
      text += " |";
      for (const Segment &segment : dim.segments) {
        text += " +";
        for (const Factor &factor : segment.factors)
          text += std::to_string(factor.id) + ":" + std::to_string(factor.size) + " ";
      }
    }
    return text;
  }
  std::string describe(const Placement &placement) const {
    std::string text;
    for (const auto &[place, axes] : placement.split)
      text += "[d" + std::to_string(place.first) + "." + std::to_string(place.second) + "@" +
              axesText(assignment.mesh, axes) + "]";
    for (const auto &[axis, kind] : placement.pending)
      text += " pending{" + axesText(assignment.mesh, {axis}) + "}";
    if (!placement.flat.empty())
      text += " flat{" + axesText(assignment.mesh, placement.flat) + "}";
    return text.empty() ? "[]" : text;
  }

  void execute(int op) {
    const GraphOp &node = graph.ops[op];
    if (node.generator)
      return;
    for (int i = 0; i < int(node.operands.size()); ++i) {
      Placement want = wanted(op, i);
      want.pending = takesOn[op];
      bring(node.operands[i], node.chunk, node.phase, want);
    }
    sendRound(op);
    int stage = stageOf(node.chunk);
    for (int value : node.results) {
      move(value, raw[value], home[value], stage, assignment.microBatches);
      for (const ParameterPlaces &places : parameters)
        for (const auto &part : places.parts)
          if (part.second == value && places.accumulated != home[value] &&
              atHand[{value, node.chunk, node.phase}].insert(places.accumulated).second)
            reductions.push_back({value, stage, node.chunk, node.phase, home[value],
                                  places.accumulated, assignment.microBatches});
    }
  }

  int stageOf(int chunk) const { return assignment.stageOf(chunk); }

  void bring(int value, int chunk, Phase phase, const Placement &want) {
    int p = parameterOf[value];
    if (p >= 0)
      gather(p, chunk, phase);
    bool isKept = p >= 0 ? phase != Phase::Forward && isKeptGathered(p, chunk)
                         : !isGenerated(value) && blockWith(value, chunk) != Block(chunk, phase);
    Placement have = home[value];
    if (isKept)
      have = kept(value, blockWith(value, chunk).first);
    else if (p < 0 && !isGenerated(value))
      have = arrived(value, chunk);
    if (want == have)
      return;
    if (atHand[{value, chunk, phase}].insert(want).second)
      move(value, have, want, stageOf(chunk), assignment.microBatches);
    else
      readReductions.insert({value, chunk, phase, want}); // if it is one
  }

  /// The stored parameter made whole at its first use in a block.
  void gather(int p, int chunk, Phase phase) {
    const ParameterPlaces &places = parameters[p];
    if (places.stored == places.home || (phase != Phase::Forward && isKeptGathered(p, chunk)))
      return;
    if (gathered.insert({p, chunk, phase}).second)
      move(graph.parameters[p].value, places.stored, places.home, stageOf(chunk),
           assignment.microBatches);
  }
  bool isKeptGathered(int p, int chunk) const {
    const ParameterPlan &plan = assignment.parameterPlans[p];
    return plan.zero >= 3 && plan.keepGathered && gathered.count({p, chunk, Phase::Forward});
  }

  bool isGenerated(int value) const {
    int producer = graph.values[value].producer;
    return producer >= 0 && graph.ops[producer].generator;
  }
  bool isForward(int value) const {
    int producer = graph.values[value].producer;
    return producer < 0 || graph.ops[producer].phase == Phase::Forward;
  }

  /// The block that computes or receives a value for the chunk: chunk and phase. Inputs, and what
  /// comes from an earlier chunk, are there in forward; what another chunk of the same stage
  /// computes is taken from it.
  using Block = std::pair<int, Phase>;
  Block blockWith(int value, int chunk) const {
    int producer = graph.values[value].producer;
    if (producer < 0)
      return {chunk, Phase::Forward};
    int from = graph.ops[producer].chunk;
    if (stageOf(from) == stageOf(chunk))
      return {from, graph.ops[producer].phase};
    bool inForward = isForward(value) && from < chunk;
    return {chunk, inForward ? Phase::Forward : Phase::Backward};
  }

  /// In what placement a value lies in its block before it is resharded there.
  Placement arrived(int value, int chunk) {
    int producer = graph.values[value].producer;
    bool comesBack = producer >= 0 && isForward(value) && graph.ops[producer].chunk > chunk &&
                     stageOf(graph.ops[producer].chunk) != stageOf(chunk);
    // Sent in backward as it was kept there.
    return comesBack ? kept(value, graph.ops[producer].chunk) : home[value];
  }

  /// In what placement the block of `chunk` that has a value keeps it for the others.
  Placement kept(int value, int chunk) {
    if (parameterOf[value] >= 0)
      return home[value];
    auto found = keptAs.find({value, chunk});
    if (found == keptAs.end())
      found = keptAs.emplace(std::pair(value, chunk), choose(value, chunk)).first;
    return found->second;
  }
  Placement choose(int value, int chunk) {
    Block block = blockWith(value, chunk);
    for (const Use &use : uses[value]) { // in the order of the ops: the first outside decides
      const GraphOp &user = graph.ops[use.op];
      if (user.generator || stageOf(user.chunk) != stageOf(chunk)) {
        bool back = !user.generator && isForward(value) && user.chunk < chunk &&
                    block.second == Phase::Forward && graph.values[value].producer >= 0 &&
                    graph.ops[graph.values[value].producer].chunk == chunk;
        if (back)
          return home[value]; // sent back: nobody else has asked before
        continue;
      }
      if (blockWith(value, user.chunk) != block || block == Block(user.chunk, user.phase))
        continue;
      Placement first = wanted(use.op, use.operand);
      first.pending = takesOn[use.op];
      auto had = atHand.find({value, block.first, block.second});
      bool hadSo = had != atHand.end() && had->second.count(first);
      return hadSo ? first : arrived(value, chunk);
    }
    return arrived(value, chunk);
  }

  void sends() {
    for (int value = 0; value < int(graph.values.size()); ++value) {
      int producer = graph.values[value].producer;
      if (producer < 0 || graph.ops[producer].generator || skipped[producer])
        continue;
      int from = graph.ops[producer].chunk;
      std::set<int> receivers;
      for (const Use &use : uses[value])
        if (stageOf(graph.ops[use.op].chunk) != stageOf(from) && !graph.ops[use.op].generator)
          receivers.insert(graph.ops[use.op].chunk);
      for (int to : receivers) {
        if (to > from && !isForward(value))
          beyond("a cotangent wanted by a later stage");
        Placement placement = to < from && isForward(value) ? kept(value, from) : home[value];
        addLine(CollectiveKind::Send, assignment.mesh.axes[assignment.pipelineAxis].name,
                stageOf(from), moves.localBytes(graph.values[value].layout, placement),
                assignment.microBatches);
      }
    }
  }

  /// Its elements may be wider than the parameter's.
  const TensorLayout &gradientLayout(size_t p) const {
    return graph.values[graph.parameters[p].gradient].layout;
  }
  void update() {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const ParameterPlaces &places = parameters[p];
      int value = graph.parameters[p].value;
      if (graph.parameters[p].gradient < 0)
        continue;
      for (int stage : places.stages) {
        if (places.stages.size() > 1)
          move(graph.parameters[p].gradient, places.accumulated, places.state, stage, 1);
        else if (places.accumulated != places.state)
          reductions.push_back({graph.parameters[p].gradient, stage, -1, Phase::Backward,
                                places.accumulated, places.state, 1});
        if (places.stages.size() > 1)
          addLine(CollectiveKind::AllReduce, assignment.mesh.axes[assignment.pipelineAxis].name,
                  stage, moves.localBytes(gradientLayout(p), places.state), 1);
        move(value, places.state, places.stored, stage, 1);
      }
    }
    if (graph.stepTotalBytes > 0) {
      std::string all;
      for (const reshard::MeshAxis &axis : assignment.mesh.axes)
        all += (all.empty() ? "" : "+") + axis.name;
      for (int stage = 0; stage < assignment.numStages && !all.empty(); ++stage)
        addLine(CollectiveKind::AllReduce, all, stage, graph.stepTotalBytes, 1);
    } else if (graph.loss >= 0 && uses[graph.loss].empty()) {
      Placement whole = home[graph.loss];
      whole.pending.clear();
      move(graph.loss, home[graph.loss], whole,
           stageOf(graph.ops[graph.values[graph.loss].producer].chunk), 1);
    }
  }

  StepSignature signature(int64_t stateBytesPerElement) {
    StepSignature result;
    result.collectives = asList(lines);
    for (const auto &[change, possible] : ties) {
      result.ties.emplace_back();
      for (const auto &[way, list] : possible)
        result.ties.back().push_back(asList(list));
    }
    result.moves = explained;
    result.resident.resize(assignment.numStages);
    for (size_t p = 0; p < parameters.size(); ++p) {
      const ParameterPlaces &places = parameters[p];
      const TensorLayout &layout = graph.values[graph.parameters[p].value].layout;
      for (int stage : places.stages) {
        ResidentBytes &bytes = result.resident[stage];
        bytes.parameters += moves.localBytes(layout, places.stored);
        if (graph.parameters[p].gradient < 0)
          continue;
        if (std::any_of(places.parts.begin(), places.parts.end(),
                        [&](const auto &part) { return stageOf(part.first) == stage; }))
          bytes.gradients += moves.localBytes(gradientLayout(p), places.accumulated);
        (assignment.offloadsStates ? bytes.hostOptimizerState : bytes.optimizerState) +=
            moves.localElements(layout, places.state) *
            (stateBytesPerElement + (layout.elementBytes < 4 ? 4 : 0));
      }
    }
    for (ResidentBytes &bytes : result.resident)
      bytes.optimizerState += graph.stepStateBytes;
    std::map<int, int> updates(graph.stateUpdates.begin(), graph.stateUpdates.end());
    for (int value = 0; value < int(graph.values.size()); ++value) {
      if (graph.values[value].producer >= 0 || graph.values[value].role != ValueRole::State)
        continue;
      std::set<int> stages;
      for (const Use &use : uses[value])
        stages.insert(stageOf(graph.ops[use.op].chunk));
      if (auto next = updates.find(value); next != updates.end())
        stages.insert(stageOf(graph.ops[graph.values[next->second].producer].chunk));
      if (stages.empty())
        stages.insert(0);
      for (int stage : stages)
        result.resident[stage].state += moves.localBytes(graph.values[value].layout, home[value]);
    }
    return result;
  }

  const Graph &graph;
  const Assignment &assignment;
  int64_t bucketBytes;
  TensorMoves moves;
  std::vector<bool> skipped; // sums of cotangents across stages
  std::vector<std::vector<Use>> uses;
  std::vector<Placement> raw, home;
  std::vector<std::map<int, ReduceKind>> takesOn; // per op: sums it adds up unfinished
  std::vector<bool> isPart;
  std::vector<int> parameterOf;
  std::vector<ParameterPlaces> parameters;
  std::map<std::tuple<int, int, Phase>, std::set<Placement>> atHand; // besides what serves as it is
  std::map<std::pair<int, int>, Placement> keptAs; // by value and chunk that keeps it
  std::set<std::tuple<int, int, Phase>> gathered;
  std::vector<Reduction> reductions;                               // of gradients, in order
  std::set<std::tuple<int, int, Phase, Placement>> readReductions; // by ops of the block
  std::vector<std::string> explained;
  Lines lines;
  std::map<std::string, std::vector<Messages>> ways;   // by change of sharding
  std::map<std::string, std::map<size_t, Lines>> ties; // where there are several, by way
};

} // namespace

std::ostream &operator<<(std::ostream &out, const ResidentBytes &bytes) {
  return out << bytes.parameters << " of parameters, " << bytes.gradients << " of gradients, "
             << bytes.optimizerState << " of optimizer state, " << bytes.hostOptimizerState
             << " of it on the host, " << bytes.state << " of state";
}

StepSignature expectedSignature(const Graph &graph, const Assignment &assignment,
                                int64_t stateBytesPerElement, int64_t bucketBytes) {
  return StepWalk(graph, assignment, bucketBytes).run(stateBytesPerElement);
}

} // namespace tbc::test

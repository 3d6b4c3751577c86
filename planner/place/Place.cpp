//===- Place.cpp - Strategies of all ops on one more mesh axis ------------===//

#include "planner/place/Place.h"
#include "planner/cost/ReshardPrices.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/place/Solver.h"
#include "planner/predict/Update.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

/// Builds and solves the pairwise problem of one graph.
class Placer {
public:
  Placer(const Graph &graph, int64_t axisSize, const Job &job, const Cluster &cluster,
         double updatesPerMicroBatch, bool mustSplit, const std::vector<KernelShare> *known,
         const PinnedOps &pinned = {})
      : pinned(pinned), graph(graph), job(job), cluster(cluster),
        updatesPerMicroBatch(updatesPerMicroBatch), mustSplit(mustSplit),
        mesh{{{mesh::row(Axis::Tensor).name, axisSize}}}, prices(mesh, cluster),
        nodeOf(graph.ops.size(), -1), parameterOf(graph.values.size(), nullptr),
        scratch(graph.ops.size()),
        own(known ? std::vector<KernelShare>() : kernelShares(cluster, graph)),
        shares(known ? *known : own) {
    for (const GraphParameter &parameter : graph.parameters)
      parameterOf[parameter.value] = &parameter;
  }

  /// Returns the bound for the problem of the ops of `part` only.
  double lowerBound(const std::vector<bool> &part) {
    isRelaxed = true;
    build(&part);
    return solve(problem).lowerBound;
  }

  Placement run() {
    build(nullptr);
    PairwiseSolution solution = solve(problem);

    Placement placement;
    placement.strategies.resize(graph.ops.size());
    for (size_t node = 0; node < nodes.size(); ++node)
      for (const Member &member : nodes[node].members)
        placement.strategies[member.op] = member.strategies[solution.choices[node]];
    placement.seconds = solution.cost;
    placement.lowerBound = solution.lowerBound;
    placement.exact = solution.exact;
    placement.nodes = int64_t(problem.nodeCosts.size());
    placement.compared = int64_t(solution.compared);
    return placement;
  }

private:
  struct Member {
    int op;
    std::vector<OpStrategy> strategies;   // per choice of the node
    std::vector<std::vector<int>> wanted; // per choice and operand: sharding number
    std::vector<std::vector<int>> raw;    // per choice and result
  };
  struct Node {
    std::vector<Member> members; // the op that chooses first; empty for the home of a value
    int deferred = -1;           // the choice that lets partial sums pass
  };

  /// `part`: the ops to place; null for all.
  void build(const std::vector<bool> *part) {
    std::vector<int> ops;
    for (int op = 0; op < int(graph.ops.size()); ++op)
      if (!part || (*part)[op])
        ops.push_back(op);
    std::set<int> values;
    for (int op : ops) {
      addChooser(op);
      values.insert(graph.ops[op].operands.begin(), graph.ops[op].operands.end());
      values.insert(graph.ops[op].results.begin(), graph.ops[op].results.end());
    }
    for (int op : ops)
      if (!choosesForItself(graph, op) && nodeOf[graph.ops[op].forwardOp] >= 0)
        addMember(nodeOf[graph.ops[op].forwardOp], op);
    for (int value : values)
      if (!part || !isSharedBeyond(value, *part))
        connect(value);
  }

  /// Whether ops outside of `part` read parameter `value` too. The part then does not decide its
  /// home.
  bool isSharedBeyond(int value, const std::vector<bool> &part) const {
    const std::vector<int> &users = graph.values[value].users;
    return graph.values[value].role == ValueRole::Parameter &&
           !std::all_of(users.begin(), users.end(), [&](int user) { return part[user]; });
  }

  /// Adds a node for an op that chooses for itself, with its tensor-parallel strategies.
  void addChooser(int op) {
    if (!choosesForItself(graph, op) || graph.ops[op].generator)
      return;
    AxisRef axis = wholeAxis(mesh, 0);
    std::vector<OpStrategy> choices;
    for (OpStrategy &strategy : enumerateStrategies(graph, op, OpStrategy(), axis))
      if (isTensorParallel(op, strategy))
        choices.push_back(std::move(strategy));
    keepPinned(op, choices);
    if (mustSplit)
      dropUnsplit(op, choices);
    int deferred = -1;
    if (canDefer(op) && pinned.allows(op, WholeOp)) {
      deferred = int(choices.size());
      choices.push_back(OpStrategy()); // whole, but on partial sums
    }
    nodeOf[op] = int(nodes.size());
    nodes.push_back({{}, deferred});
    problem.nodeCosts.emplace_back(choices.size(), 0.0);
    addMember(nodeOf[op], op, std::move(choices));
  }

  bool isMatrix(int value) const { return isParameterMatrix(graph, value); }

  /// Restricts an op to its pinned splits; keeps all if it has none of them on this axis.
  void keepPinned(int op, std::vector<OpStrategy> &choices) const {
    std::vector<OpStrategy> allowed;
    for (const OpStrategy &choice : choices)
      if (pinned.allows(op, splitKind(graph, op, choice, 0)))
        allowed.push_back(choice);
    if (!allowed.empty())
      choices = std::move(allowed);
  }

  /// Restricts an op that multiplies with a parameter matrix to the strategies that split it, if
  /// any.
  void dropUnsplit(int op, std::vector<OpStrategy> &choices) const {
    const GraphOp &graphOp = graph.ops[op];
    bool multiplies =
        graphOp.flops > 0 && std::any_of(graphOp.operands.begin(), graphOp.operands.end(),
                                         [&](int value) { return isMatrix(value); });
    auto unsplit = [](const OpStrategy &strategy) {
      return std::all_of(strategy.loopAxes.begin(), strategy.loopAxes.end(),
                         [](const auto &loop) { return loop.second.empty(); });
    };
    if (multiplies && !std::all_of(choices.begin(), choices.end(), unsplit))
      choices.erase(std::remove_if(choices.begin(), choices.end(), unsplit), choices.end());
  }

  /// Whether `strategy` is tensor parallelism as in docs/design.md, section 3: the axis does not
  /// split the batch, and an op that reads a parameter matrix splits the matrix.
  bool isTensorParallel(int op, const OpStrategy &strategy) const {
    const GraphOp &graphOp = graph.ops[op];
    bool readsMatrix = false, splitsMatrix = false, splits = false;
    for (size_t k = 0; k < graphOp.operands.size(); ++k)
      readsMatrix |= isMatrix(graphOp.operands[k]);
    for (const auto &[loop, axes] : strategy.loopAxes) {
      if (axes.empty())
        continue;
      splits = true;
      FactorId factor = graphOp.loops[loop].factor;
      if (factor == graph.batchFactor || partsQueries(graphOp, factor))
        return false;
      for (const TensorDim &place : graphOp.loops[loop].operandDims)
        splitsMatrix |= isMatrix(graphOp.operands[place.tensor]);
    }
    return !splits || !readsMatrix || splitsMatrix;
  }

  bool canDefer(int op) const {
    if (!graph.ops[op].additive)
      return false;
    for (int value : graph.ops[op].operands) {
      int producer = graph.values[value].producer;
      if (producer < 0 || graph.ops[producer].generator || graph.values[value].users.size() > 1)
        return false;
    }
    return true;
  }

  void addMember(int node, int op) {
    int chooser = nodes[node].members[0].op;
    std::vector<OpStrategy> strategies;
    for (const OpStrategy &choice : nodes[node].members[0].strategies) {
      scratch[chooser] = choice;
      strategies.push_back(inheritStrategy(graph, op, scratch));
    }
    scratch[chooser] = OpStrategy();
    nodeOf[op] = node;
    addMember(node, op, std::move(strategies));
  }

  /// Adds op `op` to a node: its kernel cost per choice, and the shardings of its operands and
  /// results. The `deferred` choice has partial operands and results.
  void addMember(int node, int op, std::vector<OpStrategy> strategies) {
    const GraphOp &graphOp = graph.ops[op];
    Member member{op, std::move(strategies), {}, {}};
    for (size_t choice = 0; choice < member.strategies.size(); ++choice) {
      const OpStrategy &strategy = member.strategies[choice];
      problem.nodeCosts[node][choice] +=
          kernelSeconds(cluster, graphOp.kernelClass, localWork(graph, op, strategy, shares[op]));
      bool deferred = int(choice) == nodes[node].deferred && nodes[node].members.empty();
      Sharding partial;
      partial.partial.push_back({wholeAxis(mesh, 0), ReduceKind::Sum});
      std::vector<int> wanted, raw;
      for (size_t k = 0; k < graphOp.operands.size(); ++k)
        wanted.push_back(
            prices.intern(graph.values[graphOp.operands[k]].layout,
                          deferred ? partial : operandSharding(graph, op, strategy, int(k))));
      for (size_t r = 0; r < graphOp.results.size(); ++r)
        raw.push_back(
            prices.intern(graph.values[graphOp.results[r]].layout,
                          deferred ? partial : resultSharding(graph, op, strategy, int(r))));
      member.wanted.push_back(std::move(wanted));
      member.raw.push_back(std::move(raw));
    }
    memberOf[op] = {node, int(nodes[node].members.size())};
    nodes[node].members.push_back(std::move(member));
  }

  const Member &memberFor(int op) const {
    auto [node, index] = memberOf.at(op);
    return nodes[node].members[index];
  }

  /// The required shardings of a value: per user node and choice of it, the distinct ones, each
  /// paid once.
  using Wishes = std::map<int, std::vector<std::vector<int>>>;

  Wishes wishesFor(int value) const {
    Wishes wishes;
    for (int user : graph.values[value].users) {
      if (nodeOf[user] < 0)
        continue;
      const Member &member = memberFor(user);
      auto &perChoice = wishes[nodeOf[user]];
      perChoice.resize(problem.nodeCosts[nodeOf[user]].size());
      for (size_t choice = 0; choice < member.strategies.size(); ++choice)
        for (size_t k = 0; k < graph.ops[user].operands.size(); ++k)
          if (graph.ops[user].operands[k] == value) {
            int wish = member.wanted[choice][k];
            auto &list = perChoice[choice];
            if (std::find(list.begin(), list.end(), wish) == list.end())
              list.push_back(wish);
          }
    }
    return wishes;
  }

  /// Adds the edges from the producer of `value` to its users; via a home node if the value may be
  /// partial and has several users.
  void connect(int value) {
    const GraphValue &graphValue = graph.values[value];
    Wishes wishes = wishesFor(value);
    if (wishes.empty())
      return;
    if (graphValue.producer < 0) {
      if (graphValue.role == ValueRole::Parameter || graphValue.role == ValueRole::State)
        connectParameter(value, wishes);
      return; // inputs arrive in the required sharding
    }
    if (nodeOf[graphValue.producer] < 0)
      return; // evaluated at its use
    const Member &producer = memberFor(graphValue.producer);
    int producerNode = nodeOf[graphValue.producer];
    std::vector<int> raw;
    for (const std::vector<int> &results : producer.raw)
      raw.push_back(results[graphValue.producerResult]);
    bool severalUsers = wishes.size() > 1;
    bool mayPend = false;
    for (size_t choice = 0; choice < raw.size(); ++choice)
      mayPend |= !resultSharding(graph, producer.op, producer.strategies[choice],
                                 graphValue.producerResult)
                      .partial.empty();
    if (severalUsers && mayPend)
      return connectHome(value, producerNode, raw, wishes);
    for (const auto &[node, perChoice] : wishes)
      addEdge(producerNode, raw, node, perChoice, wishes.size());
  }

  /// Gives a parameter the sharding required by its first user as its home. Other users reshard it,
  /// and its gradient goes there every micro-batch.
  void connectParameter(int value, const Wishes &wishes) {
    int home = wishes.begin()->first;
    std::vector<int> kept;
    for (const std::vector<int> &list : wishes.begin()->second)
      kept.push_back(list.empty() ? -1 : list[0]);
    for (const auto &[node, perChoice] : wishes)
      if (node != home)
        addEdge(home, kept, node, perChoice, wishes.size());

    const GraphParameter *parameter = parameterOf[value];
    if (!parameter || parameter->gradient < 0)
      return;
    const int gradient = parameter->gradient;
    const GraphValue &graphValue = graph.values[value];
    const GraphValue &gradientValue = graph.values[gradient];
    for (size_t choice = 0; choice < kept.size(); ++choice) {
      double elements = kept[choice] < 0 ? double(graphValue.layout.numElements())
                                         : double(prices.localElements(kept[choice]));
      double bytes = updateBytes(elements, job.stateBytesPerElement(*parameter),
                                 graphValue.layout.elementBytes, gradientValue.layout.elementBytes);
      problem.nodeCosts[home][choice] += updatesPerMicroBatch * updateSeconds(cluster, bytes, 0);
    }
    if (gradientValue.producer < 0 || nodeOf[gradientValue.producer] < 0)
      return;
    // The gradient may have another element type: the same sharding in its own layout.
    std::vector<std::vector<int>> wanted;
    for (int sharding : kept)
      wanted.push_back(sharding < 0 ? std::vector<int>()
                                    : std::vector<int>{prices.intern(
                                          gradientValue.layout,
                                          prices.shardingFor(sharding, gradientValue.layout))});
    std::vector<int> raw;
    for (const std::vector<int> &results : memberFor(gradientValue.producer).raw)
      raw.push_back(results[gradientValue.producerResult]);
    addEdge(nodeOf[gradientValue.producer], raw, home, wanted, 1);
  }

  /// Adds a node for the home of the value: completed once, or scattered as all users require.
  void connectHome(int value, int producerNode, const std::vector<int> &raw, const Wishes &wishes) {
    const GraphValue &graphValue = graph.values[value];
    const Member &producer = memberFor(graphValue.producer);
    struct State {
      int sharding;
      bool scattered;
    };
    std::vector<State> states;
    std::vector<bool> partial(raw.size());
    std::vector<int> completed(raw.size());
    for (size_t choice = 0; choice < raw.size(); ++choice) {
      Sharding sharding = resultSharding(graph, producer.op, producer.strategies[choice],
                                         graphValue.producerResult);
      partial[choice] = !sharding.partial.empty();
      sharding.partial.clear();
      completed[choice] = prices.intern(graphValue.layout, sharding);
      bool known = false;
      for (const State &state : states)
        known |= state.sharding == completed[choice];
      if (!known)
        states.push_back({completed[choice], false});
    }
    for (int sharding : commonWishes(wishes))
      states.push_back({sharding, true});

    int home = int(problem.nodeCosts.size());
    nodes.push_back({});
    problem.nodeCosts.emplace_back(states.size(), 0.0);
    PairwiseProblem::Edge edge{producerNode, home, {}};
    for (size_t choice = 0; choice < raw.size(); ++choice)
      for (const State &state : states) {
        bool possible = state.scattered ? partial[choice] : state.sharding == completed[choice];
        edge.costs.push_back(possible ? prices.seconds(raw[choice], state.sharding) : infinity);
      }
    problem.edges.push_back(std::move(edge));
    for (const auto &[node, perChoice] : wishes) {
      // A user that also produces the value has no edge to itself, but it has one to the home.
      PairwiseProblem::Edge out{home, node, {}};
      for (const State &state : states)
        for (const std::vector<int> &list : perChoice) {
          bool possible = !state.scattered || std::all_of(list.begin(), list.end(), [&](int wish) {
            return wish == state.sharding;
          });
          out.costs.push_back(possible ? wishSeconds(state.sharding, list, wishes.size())
                                       : infinity);
        }
      problem.edges.push_back(std::move(out));
    }
  }

  /// Returns the shardings required by every user under some choice, ascending.
  static std::vector<int> commonWishes(const Wishes &wishes) {
    std::set<int> common;
    bool first = true;
    for (const auto &[node, perChoice] : wishes) {
      std::set<int> here;
      for (const std::vector<int> &list : perChoice)
        if (list.size() == 1)
          here.insert(list[0]);
      if (first)
        common = here;
      else
        for (auto it = common.begin(); it != common.end();)
          it = here.count(*it) ? std::next(it) : common.erase(it);
      first = false;
    }
    return {common.begin(), common.end()};
  }

  /// Returns the cost of a user that requires each sharding of `list` of a value in sharding
  /// `have`. In a bound the cost is lower: a reshard is shared by up to `numUsers` users with the
  /// same requirement, and the second sharding may be derived from the first.
  double wishSeconds(int have, const std::vector<int> &list, size_t numUsers) {
    double total = 0, most = 0;
    for (int wish : list) {
      double seconds = prices.seconds(have, wish);
      total += seconds;
      most = std::max(most, seconds);
    }
    return isRelaxed ? most / double(numUsers) : total;
  }

  void addEdge(int from, const std::vector<int> &kept, int to,
               const std::vector<std::vector<int>> &perChoice, size_t numUsers) {
    auto seconds = [&](int have, const std::vector<int> &list) {
      return have < 0 ? 0 : wishSeconds(have, list, numUsers);
    };
    if (from == to) {
      for (size_t choice = 0; choice < kept.size(); ++choice)
        problem.nodeCosts[from][choice] += seconds(kept[choice], perChoice[choice]);
      return;
    }
    PairwiseProblem::Edge edge{from, to, {}};
    bool free = true;
    for (int have : kept)
      for (const std::vector<int> &list : perChoice) {
        edge.costs.push_back(seconds(have, list));
        free &= edge.costs.back() == 0;
      }
    if (!free)
      problem.edges.push_back(std::move(edge));
  }

  const PinnedOps pinned;
  const Graph &graph;
  const Job &job;
  const Cluster &cluster;
  double updatesPerMicroBatch;
  bool mustSplit;
  bool isRelaxed = false;
  Mesh mesh;
  ReshardPrices prices;
  PairwiseProblem problem;
  std::vector<Node> nodes;
  std::vector<int> nodeOf;                         // per op
  std::vector<const GraphParameter *> parameterOf; // per value
  std::map<int, std::pair<int, int>> memberOf;
  std::vector<OpStrategy> scratch;
  const std::vector<KernelShare> own;     // if they were not known
  const std::vector<KernelShare> &shares; // by op
};

} // namespace

Placement place(const Graph &graph, int64_t axisSize, const Job &job, const Cluster &cluster,
                double updatesPerMicroBatch, bool mustSplit, const PinnedOps &pinned,
                const std::vector<KernelShare> *shares) {
  if (axisSize == 1) {
    Placement placement;
    placement.strategies.resize(graph.ops.size());
    placement.exact = true;
    return placement;
  }
  return Placer(graph, axisSize, job, cluster, updatesPerMicroBatch, mustSplit, shares, pinned)
      .run();
}

double placementBound(const Graph &graph, const std::vector<bool> &part, int64_t axisSize,
                      const Job &job, const Cluster &cluster, bool mustSplit,
                      const std::vector<KernelShare> *shares) {
  return Placer(graph, axisSize, job, cluster, /*updatesPerMicroBatch=*/0, mustSplit, shares)
      .lowerBound(part);
}

} // namespace tbc::planner

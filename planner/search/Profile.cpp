//===- Profile.cpp - Costs of ranges of forward ops, for scoring ----------===//

#include "planner/search/Profile.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"
#include "planner/predict/Evaluate.h"
#include "planner/predict/Update.h"
#include "planner/reshard/Rebatch.h"
#include "planner/reshard/SplitBackward.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// Fills one profile from the derivation of its step on tp devices.
class Profiler {
public:
  Profiler(const ProfiledGraph &profiled, const Mesh &mesh,
           const std::vector<OpStrategy> &strategies, const Job &job, const Cluster &cluster,
           bool isInOrder)
      : job(job), cluster(cluster), isInOrder(isInOrder), graph(profiled.graph),
        cloneOf(profiled.cloneOf), anchors(profiled.anchors), canWait(profiled.canWait),
        folding(profiled.folding) {
    assignment.mesh = mesh;
    assignment.exchangesTokens = !cluster.executor.isOwn();
    for (int source : profiled.sourceOf)
      assignment.strategies.push_back(strategies[source]);
    // The mesh has no dp and fsdp. Gradients are later summed over these too.
    ParameterPlan plan;
    for (const std::string &name : tokenAxisNames())
      if (int axis = mesh.axisIndex(name); axis >= 0)
        plan.reduceAxes.push_back(wholeAxis(mesh, axis));
    assignment.parameterPlans.assign(graph.parameters.size(), plan);
    derivation = derive(graph, assignment);
    profile.folding = folding;
    profile.stageMayBegin = profiled.mayBegin;
    at.resize(size_t(numForwardOps(graph)));
  }

  Profile run() {
    addOps();
    addResiduals();
    addParameters();
    addCrossings();
    for (const StaticBytes &fixed : staticBytes(graph, assignment, derivation, job)) {
      profile.modelStateBytes += fixed.modelState;
      profile.inputBytes += fixed.inputs;
    }
    for (const Reshard &reshard : derivation.reshards)
      profile.lossIsSplit |= reshard.where == Where::Loss && !reshard.steps.empty();
    profile.stepTotalBytes = graph.stepTotalBytes;
    profile.stepStateBytes = graph.stepStateBytes;
    profile.sums = FoldedSums(folding, at);
    return std::move(profile);
  }

private:
  /// Adds kernels, collectives between ops, and live bytes at each op's anchor.
  void addOps() {
    OpSeconds ops = opSeconds(graph, assignment, derivation, cluster, isInOrder);
    LiveBytes live = liveBytes(graph, assignment, derivation);
    std::vector<double> most(at.size(), 0), workspaces(at.size(), 0), inFp8(at.size(), 0);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      RangeSums &sums = at[anchors[op]];
      if (graph.ops[op].phase == Phase::Forward) {
        sums.forward += ops.kernel[op];
        sums.operandsForward += ops.operands[op];
        sums.launchForward += ops.launch[op];
      } else {
        (cloneOf[op] >= 0 ? sums.recompute : sums.backward) += ops.kernel[op];
        sums.operandsBackward += ops.operands[op];
        sums.launchBackward += ops.launch[op];
      }
      if (canWait[op]) {
        (cloneOf[op] >= 0 ? sums.recomputeWeight : sums.weight) += ops.kernel[op];
        sums.operandsWeight += ops.operands[op];
        sums.launchWeight += ops.launch[op];
      }
      const OpStrategy &strategy = assignment.strategies[op];
      double &workspace = workspaces[anchors[op]], &rounded = inFp8[anchors[op]];
      workspace = std::max(workspace, double(workspaceBytes(graph, int(op), strategy, cluster)));
      rounded = std::max(rounded, double(fp8Bytes(graph, int(op), strategy, cluster)));
      double &here = most[anchors[op]];
      here = std::max(here, live.transients[op] + live.buffers[op]);
    }
    profile.liveBytes = FoldedMaximum(folding, std::move(most));
    profile.workspaceBytes = FoldedMaximum(folding, std::move(workspaces));
    profile.fp8Bytes = FoldedMaximum(folding, std::move(inFp8));
  }

  /// Adds residuals at their producer, and cotangents kept for wgrad at the chunk that keeps them.
  void addResiduals() {
    for (const Residual &residual : derivation.residuals) {
      const GraphValue &value = graph.values[residual.value];
      if (value.producer < 0)
        continue;
      double bytes = double(derivation.bytesOf(graph, residual.value, residual.sharding));
      at[anchors[value.producer]].residualBytes += bytes;
      if (isWaitedFor(value))
        at[anchors[value.producer]].weightResidualBytes += bytes;
    }
    for (const KeptRows &rows : derivation.keptRows)
      at[anchors[rows.op]].residualBytes += double(rows.bytes);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const GraphValue &value = graph.values[v];
      if (value.producer < 0 || graph.ops[value.producer].phase == Phase::Forward ||
          canWait[value.producer] || graph.ops[value.producer].generator || !isWaitedFor(value))
        continue;
      int keeper = anchors[value.producer];
      for (int user : value.users) // the keeping chunk: a cotangent may come from the next chunk
        if (canWait[user])
          keeper = std::min(keeper, anchors[user]);
      at[keeper].cotangentBytes += double(localBytes(value.layout, keptForWeights(int(v))));
    }
  }

  /// Returns the sharding of a backward value kept for wgrad: the one required by the first wgrad
  /// op if the rest of the backward makes it too, else its home (Deriver::keep).
  const Sharding &keptForWeights(int v) const {
    const Sharding *wanted = nullptr;
    auto forEachUse = [&](bool byWeights, auto &&visit) {
      for (int user : graph.values[v].users)
        for (size_t k = 0; k < graph.ops[user].operands.size(); ++k)
          if (canWait[user] == byWeights && graph.ops[user].operands[k] == v)
            visit(derivation.operands[user][k].sharding);
    };
    forEachUse(true, [&](const Sharding &sharding) { wanted = wanted ? wanted : &sharding; });
    if (!wanted)
      return derivation.home[v];
    bool isAtHand = false;
    forEachUse(false, [&](const Sharding &sharding) { isAtHand |= sharding == *wanted; });
    return isAtHand ? *wanted : derivation.home[v];
  }

  /// Whether a wgrad op reads `value`.
  bool isWaitedFor(const GraphValue &value) const {
    return std::any_of(value.users.begin(), value.users.end(),
                       [&](int user) { return canWait[user]; });
  }

  /// Adds each parameter at its first user.
  void addParameters() {
    std::vector<double> largest(at.size(), 0);
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      const GraphParameter &parameter = graph.parameters[p];
      const GraphValue &value = graph.values[parameter.value];
      if (value.users.empty())
        continue;
      double bytes = double(localBytes(value.layout, derivation.stored[p]));
      int first = int(at.size());
      bool inForward = false, inBackward = false;
      for (int user : value.users) {
        first = std::min(first, anchors[user]);
        inForward |= graph.ops[user].phase == Phase::Forward;
        inBackward |= graph.ops[user].phase == Phase::Backward;
        largest[anchors[user]] += bytes;
      }
      ParameterSums &here = at[first].parameters[isSplitOverExperts(p)];
      here.bytes += bytes;
      here.gathersForward += inForward;
      here.gatherForwardBytes += inForward ? bytes : 0;
      here.gathersBackward += inBackward;
      here.gatherBackwardBytes += inBackward ? bytes : 0;
      if (parameter.gradient < 0)
        continue;
      const TensorLayout &gradient = graph.values[parameter.gradient].layout;
      double elements = bytes / double(value.layout.elementBytes);
      here.trained += 1;
      here.trainedBytes += bytes;
      here.gradientBytes += elements * double(gradient.elementBytes);
      here.masterBytes += elements * double(masterBytes(value.layout.elementBytes));
      here.updateBytes += updateBytes(elements, job.stateBytesPerElement(parameter),
                                      value.layout.elementBytes, gradient.elementBytes) +
                          totalsBytes(parameter, elements);
      here.updateTensors +=
          double(planner::updateTensors(parameter, job, value.layout.elementBytes));
      here.stateBytes += elements * double(job.stateBytesPerElement(parameter));
      if (parameter.matrices)
        addMatrices(p, here);
    }
    profile.largestParameter = FoldedMaximum(folding, std::move(largest));
  }

  /// Adds what the update of parameter `p` does on whole matrices: its kernels, and what gathers
  /// them along axes other than those of the zero group.
  void addMatrices(size_t p, ParameterSums &here) {
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    Sharding matrices = derivation.stored[p];
    matrices.flat.clear();
    const Sharding stored = matrices;
    matrices = matrixSharding(stored, parameter.matrices.get(), int(layout.dims.size()));
    here.matrixSeconds += matrixSeconds(cluster, parameter, matrices);
    for (int64_t bytes : wholeStateBytes(parameter, layout, stored))
      here.wholeStateBytes += double(bytes);
    here.totals += double(parameter.matrices->totals > 0);
    here.matrices += 1;
    here.matrixBytes += double(localBytes(layout, stored));
    NetworkCost network(cluster, assignment.mesh);
    for (const Collective &step : reshard::reshard(assignment.mesh, layout, stored, matrices))
      here.matrixSeconds += network.seconds(step);
  }

  bool isSplitOverExperts(size_t parameter) const {
    int axis = axisIndex(assignment.mesh, Axis::Expert);
    return axis >= 0 &&
           overlap(usedAxes(derivation.stored[parameter]), wholeAxis(assignment.mesh, axis));
  }

  /// Sums the values live after each forward op.
  void addCrossings() {
    std::vector<double> change(at.size() + 1, 0);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const GraphValue &value = graph.values[v];
      if (value.producer < 0 || graph.ops[value.producer].phase != Phase::Forward ||
          graph.ops[value.producer].generator)
        continue;
      int last = value.producer;
      for (int user : value.users)
        if (graph.ops[user].phase == Phase::Forward)
          last = std::max(last, user);
      double bytes = double(localBytes(value.layout, derivation.home[v]));
      change[value.producer] += bytes;
      change[last] -= bytes;
    }
    double live = 0;
    for (size_t i = 0; i < at.size(); ++i)
      profile.crossing.push_back(live += change[i]);
  }

  const Job &job;
  const Cluster &cluster;
  const bool isInOrder;
  const Graph &graph;
  const std::vector<int> &cloneOf, &anchors;
  const std::vector<bool> &canWait; // by op
  const std::shared_ptr<const Folding> folding;
  Assignment assignment;
  Derivation derivation;
  std::vector<RangeSums> at;
  Profile profile;
};

} // namespace

/// Returns the samples of `graph`, or 1 if it has no batch.
static int64_t samplesOf(const Graph &graph) {
  for (const GraphValue &value : graph.values)
    if (int64_t samples = factorSize(value.layout, graph.batchFactor); samples > 0)
      return samples;
  return 1;
}

ProfiledGraph::ProfiledGraph(const Graph &original, const std::vector<bool> &recompute,
                             const FewerRepeats *fewer) {
  if (fewer) {
    std::vector<bool> flags;
    for (int op : fewer->opOf)
      flags.push_back(recompute[size_t(op)]);
    graph = withRecompute(withBatch(fewer->graph, samplesOf(original)), flags, &cloneOf, &sourceOf);
    for (int &source : sourceOf)
      source = fewer->opOf[size_t(source)];
    folding = std::make_shared<Folding>(fewer->likeOf);
  } else {
    graph = withRecompute(original, recompute, &cloneOf, &sourceOf);
    std::vector<int> itself(size_t(numForwardOps(original)));
    std::iota(itself.begin(), itself.end(), 0);
    folding = std::make_shared<Folding>(itself);
  }
  anchors = forwardAnchors(graph);
  canWait = weightOps(graph);
  mayBegin = stageMayBegin(original);
}

Profile makeProfile(const ProfiledGraph &profiled, const Mesh &mesh,
                    const std::vector<OpStrategy> &strategies, const Job &job,
                    const Cluster &cluster, bool isInOrder) {
  return Profiler(profiled, mesh, strategies, job, cluster, isInOrder).run();
}

/// Returns the seconds of `count` collectives of `bytes` in total, as of equal ones.
static double together(const NetworkCost &network, CollectiveKind kind, const GroupShape &group,
                       double count, double bytes) {
  return count > 0 ? count * network.seconds(kind, group, bytes / count) : 0;
}

/// Returns the number of `count` collectives of `bytes` in total that are joined into buckets.
static double numBuckets(const NetworkCost &network, CollectiveKind kind, const GroupShape &group,
                         double count, double bytes, const DataMode &mode) {
  const auto [start, transfer] = startAndTransfer(network, kind, group, bytes);
  return numJoined(mode.bucketBytes, count, bytes, transfer, start);
}

namespace {

/// Seconds of equal collectives: of all but one, and of that one, which ends or begins a block.
struct DividedSeconds {
  double others = 0, one = 0;
};

} // namespace

/// Divides `seconds` of `number` collectives.
static DividedSeconds divided(double seconds, double number) {
  const double one = number > 0 ? seconds / std::max(1.0, number) : 0;
  return {seconds - one, one};
}

/// Returns the seconds of reductions in buckets, with the work of the executor.
static DividedSeconds inBuckets(const NetworkCost &network, const Cluster &cluster,
                                CollectiveKind kind, const GroupShape &group, double count,
                                double bytes, const DataMode &mode) {
  const double number = numBuckets(network, kind, group, count, bytes, mode);
  return divided(together(network, kind, group, number, bytes) +
                     executorSeconds(cluster, kind, number, double(group.size), bytes),
                 number);
}

/// Returns the number of collectives that gather `count` stored parameters of `bytes` in total.
static double numGathers(const Cluster &cluster, double count, double bytes, const DataMode &mode) {
  if (mode.gatherBytes == 0)
    return count / double(cluster.executor.joinedGathers);
  return std::min(count, std::ceil(bytes / double(mode.gatherBytes)));
}

StageSeconds profiledSeconds(const RangeSums &range, const DataMode &mode,
                             const NetworkCost &network, const Cluster &cluster, bool parts) {
  StageSeconds stage;
  stage.forward = range.forward;
  stage.backward = range.backward;
  stage.recompute = range.recompute;
  stage.operandsForward = range.operandsForward;
  stage.operandsBackward = range.operandsBackward;
  stage.launchForward = range.launchForward * network.launchFactor();
  stage.launchBackward = range.launchBackward * network.launchFactor();

  const bool isLater = mode.reducesLast || cluster.executor.reducesInLastBackward(mode.zero);
  double &reductions = isLater ? stage.reduceLast : stage.reduceStep;
  // The ends of a block are those of one kind (BlockEnds.h).
  const bool showsEnds = cluster.executor.isOwn() && !parts;
  const size_t endKind = range.parameters[0].trained > 0 ? 0 : 1;
  double launches = 0, neighbours = 0, tensors = 0, matrixSeconds = 0;
  for (size_t kind = 0; kind < range.parameters.size(); ++kind) {
    const ParameterSums &of = range.parameters[kind];
    const DataMode::Groups &groups = mode.groups[kind];
    double shards = double(groups.zero.size);
    (mode.stepsApart(kind == 1) ? launches : neighbours) += of.trained;
    tensors += mode.stepsApart(kind == 1) ? 0 : of.updateTensors;
    stage.updateStep += of.updateBytes / shards; // bytes; converted to seconds below
    matrixSeconds += of.matrixSeconds;
    if (mode.zero > 0)
      stage.parameterStep +=
          together(network, CollectiveKind::AllGather, groups.zero, of.matrices, of.matrixBytes) +
          together(network, CollectiveKind::AllReduce, groups.zero, of.totals,
                   of.totals * 8); // two f32
    // Adds reductions to `part`. The one that ends a block is part of `end`.
    auto reduce = [&](double &part, CollectiveKind collective, const GroupShape &group,
                      double bytes, double &end) {
      const DividedSeconds seconds =
          inBuckets(network, cluster, collective, group, of.trained, bytes, mode);
      part += seconds.others;
      (showsEnds && kind == endKind ? end : part) += seconds.one;
    };
    double &endOfStep = mode.reducesAtOnce ? stage.lastReduceMicro
                        : mode.reducesLast ? stage.lastReduceStep
                                           : reductions;
    if (mode.zero == 0) {
      reduce(reductions, CollectiveKind::AllReduce, groups.reduce, of.gradientBytes, endOfStep);
      continue;
    }
    const bool isEach = mode.zero > 1;
    reduce(isEach ? stage.reduceMicro : reductions, CollectiveKind::ReduceScatter, groups.zero,
           of.gradientBytes, isEach ? stage.lastReduceMicro : endOfStep);
    reduce(reductions, CollectiveKind::AllReduce, groups.reduce, of.gradientBytes / shards,
           endOfStep);
    if (mode.zero < 3) {
      const double number = cluster.executor.joinsUpdates
                                ? numBuckets(network, CollectiveKind::AllGather, groups.zero,
                                             of.trained, of.trainedBytes, mode)
                                : of.trained;
      stage.parameterStep +=
          together(network, CollectiveKind::AllGather, groups.zero, number, of.trainedBytes);
      continue;
    }
    auto gather = [&](double count, double bytes, double &part, double &first) {
      const double number = numGathers(cluster, count, bytes, mode);
      const DividedSeconds seconds =
          divided(together(network, CollectiveKind::AllGather, groups.zero, number, bytes) +
                      executorSeconds(cluster, CollectiveKind::AllGather, number, shards, bytes),
                  number);
      part += seconds.others;
      (showsEnds && kind == endKind ? first : part) += seconds.one;
    };
    gather(of.gathersForward, of.gatherForwardBytes, stage.gatherForward, stage.firstGatherForward);
    if (!mode.keepGathered)
      gather(of.gathersBackward, of.gatherBackwardBytes, stage.gatherBackward,
             stage.firstGatherBackward);
  }
  launches += updateLaunches(cluster, neighbours, tensors);
  stage.updateStep = updateSeconds(cluster, stage.updateStep, launches) + matrixSeconds;
  if (parts) {
    stage.weight = range.weight;
    stage.backward -= range.weight;
    stage.recomputeWeight = range.recomputeWeight;
    stage.recompute -= range.recomputeWeight;
    stage.operandsWeight = range.operandsWeight;
    stage.operandsBackward -= range.operandsWeight;
    stage.launchWeight = range.launchWeight * network.launchFactor();
    stage.launchBackward -= stage.launchWeight;
    std::swap(stage.dataWeight, stage.reduceMicro);
  }
  return stage;
}

namespace {

/// The sums for memory only: cuts need them for very many ranges.
class BytesOfRange {
public:
  BytesOfRange(const Mix &mix, int first, int middle, int last)
      : recomputed(mix.recomputed->sums.range(first, middle)),
        kept(mix.kept->sums.range(middle, last)) {}

  double operator()(double RangeSums::*member) const {
    return sumOf([&](const RangeSums &sums) { return sums.*member; });
  }
  double operator()(size_t kind, double ParameterSums::*member) const {
    return sumOf([&](const RangeSums &sums) { return sums.parameters[kind].*member; });
  }

private:
  template <typename Get> double sumOf(Get get) const { return recomputed(get) + kept(get); }

  const FoldedSums::Range recomputed, kept;
};

} // namespace

double profiledBytes(const Mix &mix, const std::vector<ChunkRange> &chunks,
                     const schedule::Moments &moments, const DataMode &mode, const Job &job,
                     const Cluster &cluster) {
  std::array<ParameterSums, 2> parameters;
  double live = 0, largest = 0, workspace = 0, inFp8 = 0;
  // Most schedules have few moments, and cuts ask very often: without an allocation.
  std::array<double, 8> few{};
  std::vector<double> many(moments.size() > few.size() ? moments.size() : 0);
  double *kept = many.empty() ? few.data() : many.data();
  int64_t inFlight = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const ChunkRange &chunk = chunks[c];
    const BytesOfRange sums(mix, chunk.first, chunk.middle, chunk.last);
    for (size_t kind = 0; kind < parameters.size(); ++kind)
      for (auto member : {&ParameterSums::bytes, &ParameterSums::gradientBytes,
                          &ParameterSums::masterBytes, &ParameterSums::stateBytes})
        parameters[kind].*member += sums(kind, member);
    live = std::max({live, mix.recomputed->liveBytes(chunk.first, chunk.middle),
                     mix.kept->liveBytes(chunk.middle, chunk.last)});
    largest = std::max(largest, mix.kept->largestParameter(chunk.first, chunk.last));
    workspace = std::max(workspace, mix.kept->workspaceBytes(chunk.first, chunk.last));
    inFp8 = std::max(inFp8, mix.kept->fp8Bytes(chunk.first, chunk.last));
    const int begin = std::clamp(chunk.offloadEnd, chunk.first, chunk.last);
    const BytesOfRange here(mix, begin, std::clamp(chunk.middle, begin, chunk.last), chunk.last);
    const double residual = here(&RangeSums::residualBytes),
                 forWeights = here(&RangeSums::weightResidualBytes),
                 cotangents = sums(&RangeSums::cotangentBytes);
    // Each micro-batch in flight keeps the parameters that it gathered; `gathered` has the first.
    double copies = 0;
    for (size_t kind = 0; kind < parameters.size(); ++kind)
      if (mode.keepGathered && mode.groups[kind].zero.size > 1)
        copies += sums(kind, &ParameterSums::gatherBackwardBytes);
    for (size_t m = 0; m < moments.size(); ++m) {
      const schedule::InFlight &held = moments[m][c];
      inFlight = std::max(inFlight, held.untilWeight);
      kept[m] += (residual - forWeights) * double(held.forward) +
                 forWeights * double(held.untilWeight) + cotangents * double(held.weight) +
                 copies * double(std::max<int64_t>(0, held.forward - 1));
    }
  }
  StaticBytes fixed;
  fixed.state = double(mix.kept->stepStateBytes);
  double whole = 0;
  for (size_t kind = 0; kind < parameters.size(); ++kind) {
    const ParameterSums &of = parameters[kind];
    double shards = double(mode.groups[kind].zero.size);
    whole += of.bytes;
    // A master copy has twice the bytes of its weights.
    const double cast = mode.zero == 3 && !mode.storesWeights ? of.masterBytes / 2 : 0;
    fixed.parameters += (of.bytes - cast) / (mode.zero == 3 ? shards : 1);
    fixed.gradients +=
        mode.gradientFactor * of.gradientBytes / (mode.keepsGradientShards ? shards : 1);
    if (mode.reducesLast && chunks[0].first == 0 && mode.zero == 1 && shards > 1)
      fixed.gradients += of.gradientBytes / shards; // beside the accumulated ones
    if (!mode.offloadsStates) {
      fixed.master += of.masterBytes / shards;
      fixed.state += of.stateBytes / shards + of.wholeStateBytes;
    }
  }
  fixed.modelState = mix.kept->modelStateBytes;
  fixed.inputs = mix.kept->inputBytes;
  double gathered = mode.zero < 3 ? 0 : mode.keepGathered ? whole : largest;
  double owned = fixed.parameters + fixed.gradients + fixed.master + fixed.state +
                 fixed.modelState + fixed.inputs * double(inFlight) +
                 *std::max_element(kept, kept + moments.size()) + live + gathered;
  return owned * (1 + cluster.allocatorFraction) + workspace + inFp8 + double(cluster.contextBytes);
}

} // namespace tbc::planner

//===- SearcherBound.cpp - Cheap lower bound on the step time -------------===//
//
// The cheap bound, for every candidate: kernels divided evenly (with tp the placement's own bound),
// the schedule's bubble for any cut, and the update. RefinedBound.cpp has the expensive bound.
//
//===----------------------------------------------------------------------===//

#include "planner/pins/Space.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Searcher.h"

#include <algorithm>
#include <atomic>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

const WholeWork &Searcher::wholeWorkFor(int64_t samples) {
  return wholeWorks.get(samples, [&] { return WholeWork(costs.models.graphFor(samples)); });
}

/// Returns the seconds of the ops of `part` (null: all) in one micro-batch, each kernel divided
/// evenly over the devices of a model. It is a lower bound on every strategy.
double Searcher::idealSecondsOf(int64_t samples, int64_t devices, const std::vector<bool> *part) {
  const std::vector<double> seconds = wholeWorkFor(samples).dividedSeconds(cluster, devices);
  double total = 0;
  for (size_t op = 0; op < seconds.size(); ++op)
    if (!part || (*part)[op])
      total += seconds[op];
  return total;
}

double Searcher::idealSeconds(int64_t devices, int64_t microBatch) {
  return ideals.get({devices, microBatch},
                    [&] { return idealSecondsOf(microBatch, devices, nullptr); });
}

double Searcher::leastSeconds(int64_t tp, int64_t microBatch) {
  double ideal = idealSeconds(tp, microBatch);
  if (tp == 1 || problem.repeat.count == 0)
    return ideal;
  return leasts.get({tp, microBatch}, [&] {
    double bound = placementBound(costs.models.graphFor(microBatch), problem.repeat.ops, tp, job,
                                  cluster, space.tensorAxisIsPinned());
    double without = idealSecondsOf(microBatch, tp, &problem.repeat.ops);
    return ideal + double(problem.repeat.count) * std::max(0.0, bound - without);
  });
}

double Searcher::leastSeconds(const MeshShape &mesh, int64_t microBatch) {
  int64_t parts = mesh.cp * mesh.ep, samples = microBatch * mesh.ep;
  double ideal = idealSeconds(mesh.tp * parts, samples);
  // A pinned tp splits all it can, but inside experts it may split less.
  if (mesh.ep > 1 && space.tensorAxisIsPinned())
    return ideal;
  // The n-th part of a kernel or collective takes at least an n-th of its time.
  return std::max(ideal, leastSeconds(mesh.tp, samples) / double(parts));
}

/// Returns a lower bound on the update and the reductions of a step, averaged over the stages.
double Searcher::leastUpdateSeconds(const Candidate &candidate, const DataMode &mode) {
  const MeshShape &mesh = candidate.mesh;
  double bytes = 0;
  int64_t trained = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = totals()[isExpert];
    double shards = candidate.zero.zero > 0 ? double(mode.groups[isExpert].zero.size) : 1;
    bytes += of.updateBytes / (partsOf(mesh, isExpert) * shards);
    trained += int64_t(of.trained);
  }
  // Every stage has the average share; the step ends with the stage with the largest share.
  double seconds = updateSeconds(cluster, bytes, trained);
  if (candidate.zero.zero == 1 || candidate.zero.zero == 2)
    seconds += transferSeconds(candidate, mode, CollectiveKind::AllGather,
                               &ParameterTotals::trained, &ParameterTotals::trainedBytes);
  if (!reducesInBackward(candidate))
    seconds += reduceStepSeconds(candidate, mode);
  return seconds / double(mesh.pp);
}

/// Returns the seconds of gradient reductions once per step, of all stages together, in the fewest
/// possible buckets.
double Searcher::reduceStepSeconds(const Candidate &candidate, const DataMode &mode) {
  const NetworkCost &network = costs.meshes.networkFor(candidate.mesh);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = totals()[isExpert];
    const DataMode::Groups &groups = mode.groups[isExpert];
    double bytes = of.gradientBytes / partsOf(candidate.mesh, isExpert);
    auto add = [&](CollectiveKind kind, const GroupShape &group, double local) {
      double start = network.seconds(kind, group, 0);
      seconds += leastReductions(space.overlap().bucketBytes, of.trained) * start - start +
                 network.seconds(kind, group, local);
    };
    if (candidate.zero.zero == 1)
      add(CollectiveKind::ReduceScatter, groups.zero, bytes);
    add(CollectiveKind::AllReduce, groups.reduce,
        bytes / (candidate.zero.zero == 0 ? 1 : double(groups.zero.size)));
  }
  return seconds;
}

/// Returns the seconds to sum the step's scalars over all devices, or the loss over the data ranks,
/// on one stage.
double Searcher::leastScalarSeconds(const MeshShape &shape) {
  const Mesh mesh = shape.mesh();
  const bool isTotal = graph.stepTotalBytes > 0;
  std::vector<AxisRef> axes;
  for (const std::string &name : isTotal ? axisNames() : tokenAxisNames())
    if (int axis = mesh.axisIndex(name); axis >= 0)
      axes.push_back(wholeAxis(mesh, axis));
  const NetworkCost &network = costs.meshes.networkFor(shape);
  constexpr double lossBytes = 4;
  return network.seconds(CollectiveKind::AllReduce, network.groupShape(axes),
                         isTotal ? double(graph.stepTotalBytes) : lossBytes);
}

/// Returns the least seconds of exchanges with the experts along ep, of a micro-batch on each rank.
/// It counts only values needed with any recomputation: forward values within forward, and
/// cotangents. Without tp the split of ops over ep is fixed; otherwise it returns 0.
double Searcher::expertSeconds(const MeshShape &shape, int64_t microBatch) {
  if (shape.ep == 1 || shape.tp > 1 || shape.cp > 1)
    return 0;
  return expertExchanges.get({shape.ep, microBatch}, [&] {
    const ModelSplit split{1, shape.ep, 1, ContextForm::AllGather};
    const std::vector<OpStrategy> *strategies = costs.models.strategiesFor(split, microBatch);
    if (!strategies)
      return 0.0;
    const Graph &batched = costs.models.graphFor(microBatch * shape.ep);
    Assignment assignment;
    assignment.mesh = split.mesh();
    assignment.strategies = *strategies;
    ParameterPlan plan;
    plan.reduceAxes.push_back(wholeAxis(assignment.mesh, assignment.mesh.axisIndex("ep")));
    assignment.parameterPlans.assign(batched.parameters.size(), plan);
    const NetworkCost network(cluster, assignment.mesh, assignment.pipelineAxis);
    double seconds = 0;
    for (const Reshard &reshard : derive(batched, assignment).reshards) {
      const int producer = batched.values[reshard.value].producer;
      if (reshard.where != Where::Operand || producer < 0 ||
          (batched.ops[producer].phase == Phase::Forward && reshard.phase != Phase::Forward))
        continue;
      for (const Collective &step : reshard.steps)
        seconds += network.seconds(step);
    }
    return seconds;
  });
}

/// Returns the largest number of devices over which a model splits its parameters.
double Searcher::partsOf(const MeshShape &mesh, bool isExpert) {
  return double(mesh.tp) * (isExpert ? double(mesh.ep) : 1);
}

/// Returns the seconds of collectives over the zero group, one for each counted parameter
/// (`count`); reductions may be joined. Each rank has its share of their `bytes`.
double Searcher::transferSeconds(const Candidate &candidate, const DataMode &mode,
                                 CollectiveKind kind, double ParameterTotals::*count,
                                 double ParameterTotals::*bytes) {
  const NetworkCost &network = costs.meshes.networkFor(candidate.mesh);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = totals()[isExpert];
    const GroupShape &group = mode.groups[isExpert].zero;
    double start = network.seconds(kind, group, 0);
    double number = kind == CollectiveKind::ReduceScatter
                        ? leastReductions(space.overlap().bucketBytes, of.*count)
                        : of.*count;
    seconds += number * start - start +
               network.seconds(kind, group, of.*bytes / partsOf(candidate.mesh, isExpert));
  }
  return seconds;
}

/// Sums the parameters accepted by `isCounted`: index 0 without experts, index 1 with experts.
std::array<Searcher::ParameterTotals, 2>
Searcher::computeTotals(const std::function<bool(const GraphParameter &)> &isCounted) const {
  std::array<ParameterTotals, 2> totals;
  for (const GraphParameter &parameter : graph.parameters) {
    if (!isCounted(parameter))
      continue;
    const GraphValue &value = graph.values[parameter.value];
    double bytes = double(value.layout.numElements() * value.layout.elementBytes);
    bool inForward = false, inBackward = false, isExpert = false;
    for (int user : value.users) {
      inForward |= graph.ops[user].phase == Phase::Forward;
      inBackward |= graph.ops[user].phase != Phase::Forward;
      isExpert |= graph.ops[user].expertLoop >= 0;
    }
    if (value.users.empty())
      continue;
    ParameterTotals &of = totals[isExpert];
    of.bytes += bytes;
    of.inForward += inForward;
    of.forwardBytes += inForward ? bytes : 0;
    of.inBackward += inBackward;
    of.backwardBytes += inBackward ? bytes : 0;
    if (parameter.gradient < 0)
      continue;
    double elements = double(value.layout.numElements());
    int64_t gradientBytes = graph.values[parameter.gradient].layout.elementBytes;
    of.trained += 1;
    of.trainedBytes += bytes;
    of.gradientBytes += elements * double(gradientBytes);
    of.stateBytes +=
        elements * double(job.stateBytesPerElement() + masterBytes(value.layout.elementBytes));
    of.updateBytes += updateBytes(job, elements, value.layout.elementBytes, gradientBytes);
  }
  return totals;
}

/// Returns the largest saving by recomputation in a micro-batch of `samples` divided over `parts`.
double Searcher::mostSaved(double samples, double parts) {
  const MostSaved &saved =
      saving.get([&] { return mostSavedByRunningAgain(costs.models.graphFor(1), cluster); });
  return saved.launchSeconds + saved.movementSeconds * samples / parts;
}

/// Returns leastSeconds() for any recomputation. Kernels divided over fewer devices than all can
/// save more, but also take more in the first place; beside collectives this may be worthwhile.
double Searcher::secondsWhateverIsKept(const MeshShape &mesh, int64_t microBatch) {
  return std::max(idealWhateverIsKept(mesh, microBatch),
                  leastSeconds(mesh, microBatch) - mostSaved(double(microBatch * mesh.ep), 1));
}

double Searcher::idealWhateverIsKept(const MeshShape &mesh, int64_t microBatch) {
  int64_t samples = microBatch * mesh.ep, parts = mesh.tp * mesh.cp * mesh.ep;
  return idealSeconds(parts, samples) - mostSaved(double(samples), double(parts));
}

bool Searcher::mayBeContext(const Candidate &candidate) const {
  return !space.meshIsPinned() && graph.sequenceFactor >= 0 && candidate.microBatch == 1 &&
         (candidate.mesh.tp > 1 || !space.tensorAxisIsOpen());
}

/// Bounds all candidates on all threads. Candidates after the deadline get the peak-rate bound.
void Searcher::boundAll(std::vector<Candidate> &candidates, const Deadline &deadline) {
  if (workers.count() > 1) { // first the values shared by many candidates
    std::set<int64_t> samples{1};
    std::map<std::array<int64_t, 4>, const Candidate *> parts;
    for (const Candidate &candidate : candidates) {
      const MeshShape &mesh = candidate.mesh;
      samples.insert(candidate.microBatch * mesh.ep);
      parts.emplace(std::array{mesh.tp, mesh.cp, mesh.ep, candidate.microBatch}, &candidate);
    }
    std::vector<int64_t> batches(samples.begin(), samples.end());
    workers.run(batches.size(), [&](size_t i) {
      if (!deadline.isOver())
        wholeWorkFor(batches[i]);
    });
    std::vector<const Candidate *> list;
    for (const auto &[key, candidate] : parts)
      list.push_back(candidate);
    workers.run(list.size(), [&](size_t i) {
      if (!deadline.isOver())
        secondsWhateverIsKept(list[i]->mesh, list[i]->microBatch);
    });
  }
  std::atomic<bool> isOver{false};
  const double least = peakRateSeconds(); // for candidates without time to bound
  counted.bounded += int64_t(candidates.size());
  constexpr size_t number = 256; // candidates per task
  workers.run((candidates.size() + number - 1) / number, [&](size_t part) {
    size_t end = std::min(candidates.size(), (part + 1) * number);
    if (deadline.isOver())
      isOver = true;
    for (size_t i = part * number; i < end; ++i)
      if (isOver)
        candidates[i].lowerBound = candidates[i].provenBound = least;
      else
        bound(candidates[i]);
  });
  if (isOver)
    enumerationEnd = SearchEnd::TimeLimit;
}

/// Sets both bounds. `provenBound` holds for every plan with the candidate's mesh, micro-batch,
/// ZeRO and schedule. `lowerBound` holds for plans with chunks of equal length on a stage; the
/// search considers only these.
void Searcher::bound(Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  // A variant with cp has fewer data ranks.
  double seconds = secondsWhateverIsKept(mesh, candidate.microBatch) +
                   costs.meshes.batchSumSeconds(mesh).total();
  double proven =
      mayBeContext(candidate) ? idealWhateverIsKept(mesh, candidate.microBatch) : seconds;
  const ScheduleChoice &choice = candidate.schedule;
  int64_t stages = mesh.pp, accumulation = candidate.accumulation;
  double update = leastUpdateSeconds(candidate, boundMode(costs, candidate));
  double unlike = unlikeStagesBound(candidate); // 0 if all devices are alike
  auto least = [&](double work, schedule::Chunking chunking) {
    return schedule::leastMakespan(choice.kind(), work,
                                   {stages, choice.chunksPerStage, accumulation}, chunking);
  };
  candidate.provenBound = std::max(least(proven, schedule::Chunking::Any), unlike) + update;
  candidate.lowerBound =
      std::max(candidate.provenBound, least(seconds, schedule::Chunking::Equal) + update);
}

} // namespace tbc::planner

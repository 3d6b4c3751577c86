//===- Searcher.cpp - Scoring of candidates, with shared results ----------===//

#include "planner/search/Searcher.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/graph/Stages.h"
#include "planner/predict/Evaluate.h"
#include "planner/reshard/SequenceOrder.h"
#include "planner/search/Partition.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

Searcher::Searcher(const Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
                   int64_t limitBytes, PinnedOps pinned, Workers &workers)
    : problem(graph, job, cluster, space, limitBytes, std::move(pinned)), costs(problem, counted),
      graph(graph), job(job), cluster(cluster), space(space), limitBytes(limitBytes),
      workers(workers), knownTotals(computeTotals([](const GraphParameter &) { return true; })) {
  measureGraph();
}

/// Whether the candidate's schedule allows its number of micro-batches.
bool Searcher::mayRun(const Candidate &candidate) {
  const std::optional<ScheduleKind> kind = candidate.schedule.schedule;
  if (!kind)
    return true;
  schedule::Pipeline pipeline = schedule::Pipeline::plain(int(candidate.mesh.pp));
  if (candidate.schedule.chunksPerStage > 1)
    pipeline.chunkStage = candidate.schedule.chunkStage(candidate.mesh.pp);
  std::string why = schedule::whyInvalid(*kind, pipeline, candidate.accumulation);
  if (whyNoSchedule.empty())
    whyNoSchedule = why;
  return why.empty();
}

/// `isPossibleOnly`: skips meshes without scorable candidates.
void Searcher::enumerateOn(int64_t devices, bool isPossibleOnly, const Pins &limits,
                           std::vector<Candidate> &candidates) {
  if (enumerationEnd != SearchEnd::Complete)
    return;
  int64_t batch = job.globalBatch;
  if (job.batchIsDefault) { // rounded up, so that every data-parallel size divides it
    int64_t ranks = space.meshIsPinned() ? space.pinnedMesh().dataRanks() : devices;
    batch = (batch + ranks - 1) / ranks * ranks;
  }
  for (const MeshShape &mesh : space.meshes(devices)) {
    if ((mesh.dataRanks() > 1 && graph.batchFactor < 0) || !mayLie(mesh))
      continue;
    if (isPossibleOnly && (!mayHoldStages(mesh) || !mayDivide(mesh.tp)))
      continue;
    if (int64_t(candidates.size()) >= limits.budget.candidates)
      enumerationEnd = SearchEnd::Budget;
    else if (!candidates.empty() && limits.deadline.isOver())
      enumerationEnd = SearchEnd::TimeLimit;
    if (enumerationEnd != SearchEnd::Complete)
      return;
    const std::vector<ScheduleChoice> schedules = space.schedules(mesh);
    const std::vector<ContextForm> contexts = space.contexts(mesh);
    for (int64_t microBatch : space.microBatches(mesh, batch)) {
      Candidate candidate;
      candidate.mesh = mesh;
      candidate.batch = batch;
      candidate.microBatch = microBatch;
      candidate.accumulation = batch / (mesh.dataRanks() * microBatch);
      candidate.offloadsStates = space.offloadsStates();
      candidate.offloadsResiduals = space.offloadsResiduals();
      std::vector<ScheduleChoice> possible;
      for (const ScheduleChoice &schedule : schedules) {
        candidate.schedule = schedule;
        if (!isTooLarge(candidate) && mayRun(candidate))
          possible.push_back(schedule);
      }
      for (const ZeroChoice &zero : space.zeroChoices(mesh))
        for (RecomputeMode recompute : space.recomputeModes())
          for (const ScheduleChoice &schedule : possible)
            for (ContextForm context : contexts) {
              candidate.zero = zero;
              candidate.context = context;
              candidate.recompute = recompute;
              candidate.schedule = schedule;
              candidates.push_back(candidate);
            }
    }
  }
}

std::vector<Candidate> Searcher::enumerate(const Pins &limits) {
  std::vector<Candidate> candidates;
  enumerateOn(job.gpus, /*isPossibleOnly=*/!space.meshIsPinned(), limits, candidates);
  if (candidates.empty()) // then scoring gives the reason
    enumerateOn(job.gpus, /*isPossibleOnly=*/false, limits, candidates);
  // Devices may stay idle if their number has no good divisors.
  if (!space.meshIsPinned()) {
    std::vector<int64_t> fewer;
    int64_t power = 1;
    while (power * 2 <= job.gpus)
      power *= 2;
    fewer.push_back(power);
    fewer.push_back(job.gpus / cluster.devicesPerNode * cluster.devicesPerNode);
    int64_t ofFirstGroups = 0;
    for (const Cluster &group : problem.isMixed ? cluster.groups : std::vector<Cluster>())
      fewer.push_back(ofFirstGroups += group.numNodes * group.devicesPerNode);
    for (int64_t divisor : divisorsOf(job.globalBatch))
      if (divisor <= job.gpus && divisor * 2 > job.gpus)
        fewer.push_back(divisor);
    std::sort(fewer.rbegin(), fewer.rend());
    fewer.erase(std::unique(fewer.begin(), fewer.end()), fewer.end());
    for (int64_t devices : fewer)
      if (devices > 0 && devices < job.gpus)
        enumerateOn(devices, /*isPossibleOnly=*/true, limits, candidates);
  }
  boundMemory(candidates);
  if (!nothingFits)
    boundAll(candidates, limits.deadline);
  std::vector<std::pair<double, int>> order; // there are many, and each is large
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].order = int(i);
    order.push_back({nothingFits ? candidates[i].leastBytes : candidates[i].lowerBound, int(i)});
  }
  std::sort(order.begin(), order.end());
  std::vector<Candidate> sorted;
  sorted.reserve(candidates.size());
  for (const auto &[bound, i] : order)
    sorted.push_back(std::move(candidates[size_t(i)]));
  return sorted;
}

double Searcher::heldBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode,
                           int stage) {
  std::vector<ChunkRange> chunks;
  for (int chunk : costs.schedules.chunksOf(candidate, stage)) {
    int last = endOf(candidate, chunk);
    chunks.push_back({candidate.firstOps[chunk],
                      candidate.again.empty() ? last : candidate.again[chunk], last,
                      candidate.away.empty() ? 0 : candidate.away[chunk]});
  }
  return profiledBytes(mix, chunks, costs.schedules.momentsOf(candidate)[stage], mode, job,
                       costs.meshes.clusterOf(candidate.mesh, stage));
}

/// Returns chunks of equal time if they fit, else the best fitting cut found, else chunks of equal
/// time.
std::optional<std::vector<int>> Searcher::cut(const Candidate &candidate, const Profile &profile,
                                              const DataMode &mode) {
  int64_t pp = candidate.mesh.pp, numChunks = pp * candidate.schedule.chunksPerStage;
  if (pp == 1)
    return std::vector<int>{0};
  const StageCutter &cutter = cutterFor(candidate, profile);
  std::optional<std::vector<int>> balanced = cutter.cut(int(numChunks));
  if (!balanced)
    return std::nullopt;
  bool isEnough = true;
  Candidate even = candidate;
  even.firstOps = *balanced;
  if (candidate.offloadsResiduals)
    chooseAway(even, profile, mode);
  // Assumes the largest offload; a stage may offload less.
  auto away = [&](int last) { return candidate.offloadsResiduals ? last : 0; };
  for (int64_t s = 0; s < pp; ++s)
    isEnough &= fits(even, profile, mode, int(s));
  if (isEnough)
    return balanced;
  const std::vector<schedule::Moments> &kept = costs.schedules.momentsOf(candidate);
  // Lower bound on all stages together: one stage with the smallest number of micro-batches in
  // flight.
  schedule::InFlight least = kept[0][0][0];
  for (const schedule::Moments &stage : kept)
    for (const schedule::InFlight &chunk : stage[0]) {
      least.forward = std::min(least.forward, chunk.forward);
      least.untilWeight = std::min(least.untilWeight, chunk.untilWeight);
      least.weight = std::min(least.weight, chunk.weight);
    }
  double together = profiledBytes(
      profile, {{0, profile.numForward, profile.numForward, away(profile.numForward)}}, {{least}},
      mode, job, cluster);
  if (together + double(pp - 1) * double(cluster.contextBytes) > double(pp) * double(limitBytes))
    return balanced;
  if (numChunks > pp) {
    const std::vector<int> &chunkStage = costs.schedules.chunksFor(candidate).stageOf;
    auto bytes = [&](const std::vector<StageCutter::Span> &spans) {
      std::vector<ChunkRange> chunks;
      for (const StageCutter::Span &span : spans)
        chunks.push_back({span.first, span.last, span.last, away(span.last)});
      int stage = chunkStage[spans[0].chunk];
      return scaled(candidate, stage,
                    profiledBytes(profile, chunks, kept[stage], mode, job,
                                  costs.meshes.clusterOf(candidate.mesh, stage)));
    };
    constexpr int maxTries = 2000; // some milliseconds
    std::optional<std::vector<int>> within =
        cutter.cutTogether(chunkStage, double(limitBytes), bytes, maxTries);
    return within ? within : balanced;
  }
  auto bytes = [&](int first, int last, int stage) {
    return scaled(candidate, stage,
                  profiledBytes(profile, {{first, last, last, away(last)}}, kept[stage], mode, job,
                                costs.meshes.clusterOf(candidate.mesh, stage)));
  };
  std::optional<std::vector<int>> within = cutter.cutWithin(kept, double(limitBytes), bytes);
  return within ? within : balanced;
}

/// Returns the seconds to sum the scalar loss over the ranks with parts of it, or the step's
/// scalars over all ranks.
double Searcher::lossSeconds(const Candidate &candidate, const Profile &profile) {
  Mesh mesh = candidate.mesh.mesh();
  bool isTotal = profile.stepTotalBytes > 0;
  std::vector<AxisRef> axes;
  for (const std::string &name : axisNames()) {
    bool isPart = name == "tp" ? profile.lossIsSplit : name != "pp";
    if (mesh.axisIndex(name) >= 0 && (isTotal || isPart))
      axes.push_back(wholeAxis(mesh, mesh.axisIndex(name)));
  }
  return costs.meshes.stagesFor(candidate.mesh)
      .networks->seconds(CollectiveKind::AllReduce, axes,
                         costs.schedules.chunksFor(candidate).stageOf.back(),
                         isTotal ? double(profile.stepTotalBytes) : 4);
}

bool Searcher::score(Candidate &candidate, bool refine) {
  if (!costs.models.mayPlace(candidate))
    return false;
  const Profile &profile = costs.models.profileOf(candidate, candidate.recompute);
  DataMode mode = firstMode(costs, candidate);
  candidate.again.clear();
  candidate.blocksAgain.clear();
  candidate.away.clear();
  candidate.blocksAway.clear();
  std::optional<std::vector<int>> firstOps = cut(candidate, profile, mode);
  if (!firstOps)
    return false;
  candidate.firstOps = *firstOps;
  Mix mix = profile;
  if (candidate.offloadsResiduals)
    for (int stage = 0; stage < int(candidate.mesh.pp); ++stage)
      setAway(candidate, stage, blocksOn(candidate, stage));
  if (costs.models.isPartial(candidate)) {
    mix = Mix(profile, costs.models.profileOf(candidate, weakerMode(candidate.recompute)));
    if (!chooseAgain(candidate, mix, mode)) {
      if (!refine)
        return false;          // the weaker mode is a candidate of its own
      candidate.again.clear(); // recompute all, possibly faster for a small graph
      candidate.blocksAgain.clear();
      mix = profile;
    }
  }
  if (candidate.offloadsResiduals)
    chooseAway(candidate, mix, mode);
  price(candidate, mix, mode);
  if (refine && candidate.mesh.pp > 1)
    refineCuts(candidate, mix, mode);
  return true;
}

std::vector<Candidate> Searcher::withContext(const Candidate &candidate) {
  std::vector<Candidate> result;
  if (candidate.mesh.cp > 1 || candidate.microBatch > 1 || space.meshIsPinned() ||
      graph.sequenceFactor < 0)
    return result;
  for (const char *axis : {"dp", "fsdp", "tp", "pp"})
    for (int64_t cp : {2, 4, 8, 16}) {
      Candidate next = candidate;
      int64_t *size = next.mesh.find(axis);
      // A pipeline of one stage would have another schedule.
      if (*size % cp != 0 || (size == &next.mesh.pp && *size == cp))
        continue;
      *size /= cp;
      next.mesh.cp = cp;
      next.accumulation = next.batch / next.mesh.dataRanks();
      std::vector<int64_t> microBatches = space.microBatches(next.mesh, next.batch);
      bool mayTake = std::count(microBatches.begin(), microBatches.end(), next.microBatch) > 0;
      if (!space.allowed(next.mesh) || !mayTake || !mayRun(next) || !mayLie(next.mesh) ||
          (space.isZigzag() && !whyNoZigzag(graph, cp).empty()))
        continue;
      bool hadNone = candidate.mesh.tokenRanks() == 1;
      for (const ZeroChoice &zero : space.zeroChoices(next.mesh))
        for (ContextForm form : space.contexts(next.mesh)) {
          next.context = form;
          next.zero = hadNone ? zero : candidate.zero;
          if ((hadNone || zero == candidate.zero) &&
              costs.models.strategiesFor(splitOf(next), next.microBatch))
            result.push_back(next);
        }
    }
  return result;
}

/// Sets the seconds and the peak bytes of a candidate with known cuts. Sums each chunk's profile,
/// then simulates the schedule, or uses the closed form for long schedules (more than 512 chunk
/// executions).
void Searcher::price(Candidate &candidate, const Mix &mix, const DataMode &mode) {
  ++counted.priced;
  const Profile &profile = *mix.kept; // for the fields equal in both
  const MeshStages &known = costs.meshes.stagesFor(candidate.mesh);
  std::vector<StageSeconds> chunks;
  int64_t pp = candidate.mesh.pp;
  const std::vector<int> &chunkStage = costs.schedules.chunksFor(candidate).stageOf;
  auto stageOf = [&](size_t chunk) { return chunkStage[chunk]; };
  auto send = [&](size_t a, size_t b, double bytes) {
    if (stageOf(a) == stageOf(b))
      return 0.0;
    return known.networks->sendSeconds(std::min(stageOf(a), stageOf(b)),
                                       std::max(stageOf(a), stageOf(b)), bytes);
  };
  bool parts = schedule::splitsBackward(candidate.schedule.kind());
  for (size_t c = 0; c < candidate.firstOps.size(); ++c) {
    int first = candidate.firstOps[c], stage = stageOf(c);
    bool isLast = c + 1 == candidate.firstOps.size();
    int last = isLast ? profile.numForward : candidate.firstOps[c + 1];
    const Mix here = costs.models.mixOn(candidate, mix, stage);
    const DataMode modeHere = modeOn(costs, candidate, mode, stage);
    const NetworkCost &network = known.networks->of(stage);
    RangeSums range = here.sums(first, candidate.again.empty() ? last : candidate.again[c], last);
    StageSeconds chunk = profiledSeconds(range, modeHere, network, known.devices.of(stage), parts);
    const BatchSumSeconds &sums = costs.meshes.batchSumSeconds(candidate.mesh, stage);
    chunk.operandsForward += sums.forward[last] - sums.forward[first];
    chunk.operandsBackward += sums.backward[last] - sums.backward[first];
    addHostCopies(candidate, here, modeHere, int(c), last, chunk);
    if (!isLast)
      chunk.sendForward = send(c, c + 1, profile.crossingBytes[last - 1]);
    if (c > 0)
      chunk.sendBackward = send(c - 1, c, profile.crossingBytes[first - 1]);
    chunks.push_back(chunk);
  }
  candidate.peakBytes = 0;
  for (int64_t s = 0; s < pp; ++s) {
    double bytes = stageBytes(candidate, mix, mode, int(s));
    if (bytes > candidate.peakBytes) {
      candidate.peakBytes = bytes;
      candidate.fullestStage = int(s);
    }
  }
  chunks.back().parameterStep += lossSeconds(candidate, profile);
  // Simulating the schedule is exact, and cheap if it is short.
  if (int64_t(chunks.size()) * candidate.accumulation <= 512) {
    const KnownSchedule &run = costs.schedules.scheduleFor(candidate);
    candidate.seconds = simulatedStepTime(known.devices, chunks, run.schedule).seconds;
  } else {
    PipelineSchedule outline; // the input of the closed form
    outline.kind = candidate.schedule.kind();
    outline.pipeline.numStages = int(pp);
    outline.pipeline.chunkStage = chunkStage;
    outline.accumulation = candidate.accumulation;
    candidate.seconds = stepTime(known.devices, chunks, outline).seconds;
  }
  candidate.feasible = candidate.peakBytes <= double(limitBytes);
}

/// Moves one cut at a time, to any position, as long as this helps. The cut with the shortest
/// longest stage is not the fastest if the schedule is short, reductions are long or sends differ.
void Searcher::refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode) {
  const Profile &profile = *mix.kept;
  std::vector<int> positions = cutPlaces(profile, int64_t(candidate.firstOps.size()));
  constexpr int mostRounds = 3;
  bool improved = true;
  for (int round = 0; improved && round < mostRounds; ++round) {
    improved = false;
    for (size_t s = 1; s < candidate.firstOps.size(); ++s) {
      int low = candidate.firstOps[s - 1];
      int high = s + 1 < candidate.firstOps.size() ? candidate.firstOps[s + 1] : profile.numForward;
      for (int position : positions) {
        if (position <= low || position >= high || position == candidate.firstOps[s])
          continue;
        Candidate moved = candidate;
        moved.firstOps[s] = position;
        if (!moved.again.empty())
          chooseAgain(moved, mix, mode);
        if (!moved.away.empty())
          chooseAway(moved, mix, mode);
        price(moved, mix, mode);
        if (moved.feasible < candidate.feasible ||
            (moved.feasible == candidate.feasible && moved.seconds >= candidate.seconds))
          continue;
        candidate = std::move(moved);
        improved = true;
      }
    }
  }
}

void Searcher::moveCut(Candidate &candidate, size_t chunk, int first) {
  const Mix mix = candidate.again.empty()
                      ? Mix(costs.models.profileOf(candidate, candidate.recompute))
                      : costs.models.mixOf(candidate);
  const DataMode mode = firstMode(costs, candidate);
  candidate.firstOps[chunk] = first;
  if (!candidate.again.empty())
    chooseAgain(candidate, mix, mode);
  if (!candidate.away.empty())
    chooseAway(candidate, mix, mode);
  price(candidate, mix, mode);
}

Plan Searcher::planOf(const Candidate &candidate) {
  Plan plan;
  plan.job = job;
  plan.job.globalBatch = candidate.batch;
  plan.cluster = cluster;
  plan.mesh = candidate.mesh;
  plan.context = candidate.context;
  plan.zigzag = candidate.mesh.cp > 1 && problem.takesZigzag(candidate.mesh.cp);
  plan.idleDevices = job.gpus - candidate.mesh.numRanks();
  plan.microBatch = candidate.microBatch;
  plan.accumulation = candidate.accumulation;
  plan.schedule = candidate.schedule.schedule;
  plan.chunkStage = candidate.schedule.chunkStage(candidate.mesh.pp);
  plan.recompute = recomputeOf(candidate);
  plan.offload = offloadOf(candidate);

  // Decisions for ops with axes beyond the batch and the experts; ops with the same axes share one.
  const ModelSplit split = splitOf(candidate).withoutContext();
  const Graph &batched = costs.models.graphFor(candidate.microBatch * split.ep);
  const std::vector<OpStrategy> &strategies =
      *costs.models.strategiesFor(split, candidate.microBatch);
  const int tensorAxis = split.mesh().axisIndex("tp");
  const Graph whole = withBatch(graph, candidate.microBatch * candidate.mesh.dataRanks());
  const AxisRef data{0, 1, candidate.mesh.dp * candidate.mesh.fsdp}, experts{1, 1, split.ep};
  // Ops of equal structure and axes have equal placements.
  const std::vector<uint64_t> &structure = costs.models.hashes();
  std::map<std::pair<std::map<int, AxisNames>, uint64_t>, size_t> known;
  auto decisionFor = [&](OpPlacement placement) {
    auto equal = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const OpDecision &decision) {
      return decision.placement == placement;
    });
    const size_t index = size_t(equal - plan.ops.begin());
    if (equal == plan.ops.end())
      plan.ops.push_back({std::move(placement), {}});
    return index;
  };
  for (int op = 0; op < int(batched.ops.size()); ++op) {
    if (!choosesForItself(batched, op))
      continue;
    std::map<int, std::vector<std::string>> loopAxes;
    for (const auto &[loop, axes] : strategies[op].loopAxes)
      if (tensorAxis >= 0 && overlap(axes, {tensorAxis, 1, split.tp}))
        loopAxes[loop] = {"tp"};
    if (loopAxes.empty())
      continue;
    // The batch stays split over data ranks, and experts over ep; tp comes after them on the same
    // loop.
    for (const auto &[loop, axes] : batchStrategy(whole, op, {data}, {experts}).loopAxes) {
      std::vector<std::string> names;
      for (const AxisRef &axis : axes)
        if (axis == experts)
          names.push_back("ep");
        else
          names = {"dp", "fsdp"};
      loopAxes[loop].insert(loopAxes[loop].begin(), names.begin(), names.end());
    }
    size_t index;
    if (op >= int(structure.size())) {
      index = decisionFor(placementOf(batched, op, loopAxes));
    } else {
      auto [found, isNew] = known.try_emplace({loopAxes, structure[op]});
      if (isNew)
        found->second = decisionFor(placementOf(batched, op, loopAxes));
      index = found->second;
    }
    plan.ops[index].ops.push_back(batched.ops[op].id);
  }

  plan.parameterDefault.zero = candidate.zero.zero;
  plan.parameterDefault.keepGathered = candidate.zero.keepGathered;
  for (const std::string &name : tokenAxisNames())
    if (*plan.mesh.find(name) > 1)
      (isZeroAxis(candidate, name) ? plan.parameterDefault.zeroAxes
                                   : plan.parameterDefault.reduceAxes)
          .push_back(name);
  for (int op : candidate.firstOps)
    plan.stages.push_back(graph.ops[op].id);
  if (std::vector<bool> flags = flagsOf(candidate);
      std::find(flags.begin(), flags.end(), true) != flags.end()) {
    Graph staged = batched;
    setChunks(staged, candidate.firstOps);
    for (int op : reexecutedOps(staged, flags))
      plan.recomputeOps.push_back(graph.ops[op].id);
  }
  return plan;
}

} // namespace tbc::planner

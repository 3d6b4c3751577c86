//===- ScheduleBound.cpp - Bounds on the pipeline of a candidate ----------===//

#include "planner/search/ScheduleBound.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the number of moves of a micro-batch from one stage to another in its forward.
static int64_t numHops(const CostTables &costs, const Candidate &candidate) {
  const std::vector<int> &stageOf = costs.schedules.chunksFor(candidate).stageOf;
  int64_t hops = 0;
  for (size_t chunk = 1; chunk < stageOf.size(); ++chunk)
    hops += stageOf[chunk] != stageOf[chunk - 1];
  return hops;
}

double leastSendSeconds(const BoundTables &tables, const Candidate &candidate) {
  const std::vector<int> &stageOf = tables.costs.schedules.chunksFor(candidate).stageOf;
  if (stageOf.size() < 2 || stageOf[0] == stageOf[1])
    return 0; // the first chunk may send nothing
  const double bytes =
      leastSendBytes(tables.firstSendsFor(chunksElsewhere(stageOf)), double(candidate.microBatch));
  if (bytes == 0)
    return 0;
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  double parts = double(candidate.mesh.tp * candidate.mesh.cp);
  return network.seconds(CollectiveKind::Send, network.stageGroupShape({0, 1}), bytes / parts);
}

/// Returns an estimate of the most that chains can prove, because no bound over all cuts exceeds
/// the makespan of one of them: that of equal stages, of `work` seconds all together, with two
/// sends for each micro-batch and each chunk. Example: 1F1B on 2 stages, 4 micro-batches of 4 s and
/// sends of 0.1 s: 4 * 2 s + 2 s + 2 * (4 + 2) * 0.1 s = 11.2 s.
static double mostByChains(const Candidate &candidate, const WorkShare &kernels, double work,
                           double sendSeconds) {
  const ScheduleChoice &choice = candidate.schedule;
  const double stages = double(candidate.mesh.pp);
  const double share = work / kernels.seconds() / stages; // of a stage
  schedule::ChunkTimes stage;
  stage.forwardSeconds = share * kernels.forward;
  stage.backwardSeconds = share * kernels.backward;
  stage.weightSeconds = share * kernels.weight;
  const double sends = double(candidate.accumulation) + stages * double(choice.chunksPerStage);
  return double(candidate.accumulation) * work / stages + 2 * sends * sendSeconds +
         (stages - 1) *
             schedule::bubbleSeconds(choice.kind(), stage, double(choice.chunksPerStage));
}

/// Returns the larger of `least` and the bound by chains of actions. `leastSend`: of every send.
/// `isFinal`: as refinedBound.
static double chainSeconds(const BoundTables &tables, const Candidate &candidate,
                           const MicroBatchWork &work, double leastSend, double least, double limit,
                           bool isFinal) {
  const WorkInOrder &inOrder = work.kernels.inOrder;
  const double seconds = work.kernels.total.seconds() + work.anywhere + work.recomputeSeconds;
  const CutSeconds &cuts = tables.cutSecondsFor(candidate);
  SendSeconds sends;
  sends.least = leastSend;
  const double typicalSend = std::max(leastSend, cuts.typical);
  if (!isFinal && mostByChains(candidate, work.kernels.total, seconds, typicalSend) < limit)
    return least;
  for (bool isFine : {false, true}) {
    const ChainMixture &mixture =
        tables.mixtureFor(candidate, work.kernels.total, typicalSend, isFine);
    auto leastOf = [&](bool isInOrder) {
      return mixture.leastSeconds(inOrder, work.anywhere, sends, work.recomputeSeconds, isInOrder);
    };
    least = std::max(least, leastOf(false));
    // The order of chunks, if it may prove that no cut is faster than `limit`.
    if (least < limit && (isFinal || mixture.mostSeconds() * seconds >= limit)) {
      if (sends.forward.empty()) {
        sends = cuts.sends;
        sends.atLeast(leastSend);
      }
      least = std::max(least, leastOf(true));
    }
    // More rounds take longer than to score a few candidates.
    if (least >= limit || !isFinal)
      break;
  }
  return least;
}

double leastPipelineSeconds(const BoundTables &tables, const Candidate &candidate,
                            const MicroBatchWork &work, double least, double limit, bool isFinal) {
  const ScheduleChoice &choice = candidate.schedule;
  const DividedWork &kernels = work.kernels;
  const bool splitsBackward = schedule::splitsBackward(choice.kind());
  const double send = leastSendSeconds(tables, candidate);
  const double pass =
      splitsBackward ? kernels.least.forward + kernels.least.backward : work.seconds();
  const int64_t hops = numHops(tables.costs, candidate);
  const std::vector<double> &cheapest = tables.cutSecondsFor(candidate).cheapest;
  least = std::max(least, pass + 2 * double(hops) * send);
  if (size_t(hops) < cheapest.size())
    least = std::max(least, pass + cheapest[size_t(hops)]);
  least = std::max(least, pass + tables.passSendSeconds(candidate, send));
  if (least >= limit)
    return least;

  CutBound::Pipeline pipeline;
  pipeline.stages = candidate.mesh.pp;
  pipeline.accumulation = candidate.accumulation;
  pipeline.hasOneChunk = choice.chunksPerStage == 1;
  pipeline.partsBackward = splitsBackward;
  pipeline.sendSeconds = send;
  least = kernels.cuts->leastSeconds(pipeline, least, limit);
  // Some hundredths of a second; for the order of scoring less than to score a few candidates.
  const int64_t mostTasks = isFinal ? 1 << 16 : 1 << 13;
  int64_t tasks = candidate.mesh.pp * choice.chunksPerStage * candidate.accumulation;
  if (least >= limit || tasks > mostTasks)
    return least;
  least = chainSeconds(tables, candidate, work, send, least, limit, isFinal);
  constexpr int64_t mostTries = 1 << 14;
  const std::vector<bool> &mayBegin = kernels.inOrder.mayBegin;
  const size_t numChunks = size_t(candidate.mesh.pp * choice.chunksPerStage);
  if (least < limit && numCuts(mayBegin, numChunks) * double(tasks) <= double(mostTries))
    least = std::max(least, shortestCutSeconds(tables.costs.schedules.scheduleFor(candidate),
                                               kernels.leastByOp, mayBegin,
                                               pieceSends(tables, candidate, send),
                                               mostTries / tasks, limit));
  return least;
}

} // namespace tbc::planner

//===- LeastMemory.cpp - Lower bounds on memory ---------------------------===//
//
// Closed-form bounds before any placement or pricing. They prove that no plan can fit, and exclude
// candidates because of the graph or too large numbers.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"
#include "planner/search/Searcher.h"

#include <algorithm>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

/// Listing the steps of more micro-batches per rank would take too long.
constexpr int64_t mostMicroBatches = int64_t(1) << 20;
/// Beyond this, products of sizes exceed 64 bits. On 2^20 devices it is 1 TiB on each.
constexpr double mostValueBytes = double(int64_t(1) << 60);

static bool hasFactor(const TensorLayout &layout, FactorId id) {
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      for (const Factor &factor : segment.factors)
        if (factor.id == id)
          return true;
  return false;
}

/// Measures the graph once for all candidates, for the functions of this file.
void Searcher::measureGraph() {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  numPlaces = std::count(mayBegin.begin(), mayBegin.end(), true);
  if (!mayBegin.empty() && !mayBegin[0])
    ++numPlaces; // the first stage begins there anyway
  double batch = 1;
  for (const GraphOp &op : graph.ops)
    for (const Loop &loop : op.loops) {
      if (loop.factor == graph.batchFactor)
        batch = double(loop.size);
      else if (loop.kind != LoopKind::Fixed)
        loopSizes.push_back(loop.size);
    }
  std::sort(loopSizes.begin(), loopSizes.end());
  loopSizes.erase(std::unique(loopSizes.begin(), loopSizes.end()), loopSizes.end());
  for (const GraphValue &value : graph.values) {
    if (graph.batchFactor < 0 || !hasFactor(value.layout, graph.batchFactor))
      continue;
    const double bytes = fullBytes(value.layout) / batch;
    mostBytesPerSample = std::max(mostBytesPerSample, bytes);
    if (value.producer < 0)
      continue;
    const GraphOp &op = graph.ops[value.producer];
    if (op.phase == Phase::Forward && isMatrixClass(op.kernelClass) && op.expertLoop < 0)
      mostResultPerSample = std::max(mostResultPerSample, bytes);
  }
}

/// Whether the graph has a position for the beginning of every stage.
bool Searcher::mayHoldStages(const MeshShape &mesh) const { return mesh.pp <= numPlaces; }

/// Whether tp divides any loop except the batch's.
bool Searcher::mayDivide(int64_t tp) const {
  return tp == 1 || std::any_of(loopSizes.begin(), loopSizes.end(),
                                [&](int64_t size) { return size % tp == 0; });
}

/// Whether the schedule is too long or a value too large for the search; records the first reason.
bool Searcher::isTooLarge(const Candidate &candidate) {
  const double samples = double(candidate.microBatch) * double(candidate.mesh.dataRanks());
  const bool isWide = samples * mostBytesPerSample > mostValueBytes;
  const int64_t chunks =
      candidate.mesh.pp == 1 ? 1 : candidate.mesh.pp * candidate.schedule.chunksPerStage;
  const bool isLong = candidate.accumulation > mostMicroBatches / chunks;
  if ((isWide || isLong) && whyLeftOut.empty())
    whyLeftOut = "--batch " + std::to_string(candidate.batch) + " on " + std::to_string(job.gpus) +
                 (job.gpus == 1 ? " device" : " devices") + ": plans with more than " +
                 std::to_string(mostMicroBatches) +
                 " micro-batches per rank and step, in a pipeline times its stages, or with a "
                 "tensor of more than 1 EiB, are not looked at";
  return isWide || isLong;
}

const Searcher::DividedTotals &Searcher::dividedTotals(int64_t tp) {
  return knownDivided.get(tp, [&] {
    DividedTotals divided;
    divided.divided = computeTotals([&](const GraphParameter &parameter) {
      for (const DimLayout &dim : graph.values[parameter.value].layout.dims)
        for (const Segment &segment : dim.segments)
          for (const Factor &factor : segment.factors)
            if (factor.size % tp == 0)
              return true;
      return false;
    });
    // The others, by difference: a double counts bytes exactly.
    for (size_t kind = 0; kind < divided.whole.size(); ++kind) {
      ParameterTotals &rest = divided.whole[kind];
      const ParameterTotals &all = totals()[kind], &of = divided.divided[kind];
      rest.bytes = all.bytes - of.bytes;
      rest.backwardBytes = all.backwardBytes - of.backwardBytes;
      rest.gradientBytes = all.gradientBytes - of.gradientBytes;
      rest.stateBytes = all.stateBytes - of.stateBytes;
    }
    return divided;
  });
}

/// Returns a lower bound on the parameter-related bytes on all stages of one model together. As
/// fixedBytes, but tp divides only parameters with a divisible factor.
double Searcher::leastFixedBytes(const Candidate &candidate, const DataMode &mode) {
  const DividedTotals &of = dividedTotals(candidate.mesh.tp);
  double bytes = 0;
  for (bool isExpert : {false, true})
    bytes += fixedBytes(candidate, mode, of.divided[isExpert], isExpert) +
             fixedBytes(candidate, mode, of.whole[isExpert], isExpert) * double(candidate.mesh.tp);
  return bytes;
}

/// Returns a lower bound in bytes on the fullest device of the candidate, with context and margin.
/// A stage holds on average its share of parameters, gradients and states. One stage also holds the
/// largest matmul result. Example: 1.27 TiB for GPT-3 175B on two devices, with 16 bytes for each
/// of 174.6e9 parameters.
double Searcher::leastBytes(const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  const double fixed = leastFixedBytes(candidate, boundMode(costs, candidate)) / double(mesh.pp);
  const double result =
      double(candidate.microBatch) * mostResultPerSample / double(mesh.tp * mesh.cp);
  const double owned = mesh.pp == 1 ? fixed + result : std::max(fixed, result);
  return owned * (1 + cluster.allocatorFraction) + double(cluster.contextBytes);
}

double leastBytesAnywhere(const Graph &graph, const Job &job, const Cluster &cluster,
                          bool offloadsStates) {
  double owned = 0;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    if (value.users.empty())
      continue;
    owned += fullBytes(value.layout);
    if (parameter.gradient < 0)
      continue;
    owned += fullBytes(graph.values[parameter.gradient].layout);
    if (!offloadsStates)
      owned += fullBytes(value.layout) / double(value.layout.elementBytes) *
               double(job.stateBytesPerElement() + masterBytes(value.layout.elementBytes));
  }
  return owned / double(job.gpus) * (1 + cluster.allocatorFraction) + double(cluster.contextBytes);
}

/// Sets `leastBytes`, and determines if any plan may fit.
void Searcher::boundMemory(std::vector<Candidate> &candidates) {
  const bool mayHaveContext = !space.meshIsPinned() && graph.sequenceFactor >= 0;
  leastOfAll = mayHaveContext ? leastBytesAnywhere(graph, job, cluster, space.offloadsStates())
                              : std::numeric_limits<double>::infinity();
  for (Candidate &candidate : candidates) {
    candidate.leastBytes = leastBytes(candidate);
    leastOfAll = std::min(leastOfAll, candidate.leastBytes);
  }
  nothingFits = leastOfAll > double(limitBytes) && !candidates.empty() &&
                enumerationEnd == SearchEnd::Complete && whyLeftOut.empty();
}

double Searcher::peakRateSeconds() const {
  double flops = 0, batch = 1;
  for (const GraphOp &op : graph.ops) {
    flops += isMatrixClass(op.kernelClass) ? op.flops : 0;
    for (const Loop &loop : op.loops)
      if (loop.factor == graph.batchFactor)
        batch = double(loop.size);
  }
  double peak = 0, executed = 1;
  for (const auto &[precision, rate] : cluster.peakFlopsPerSecond)
    peak = std::max(peak, rate);
  for (const auto &[name, kernel] : cluster.kernels)
    executed = std::min(executed, kernel.executedFraction);
  return flops * executed / batch * double(job.globalBatch) / (peak * double(job.gpus));
}

} // namespace tbc::planner

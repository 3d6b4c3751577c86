//===- RefinedBound.cpp - Expensive lower bound on the step time ----------===//

#include "planner/search/RefinedBound.h"
#include "planner/search/CandidateBound.h"
#include "planner/search/KeptBytesBound.h"
#include "planner/search/KernelBound.h"
#include "planner/search/ParameterBound.h"
#include "planner/search/ScheduleBound.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the candidates with cp covered by this one (mayBeContext): with a factor of tp on cp,
/// or, if not every tp is tried, of a data axis.
static std::vector<Candidate> contextVariants(const SearchProblem &problem,
                                              const Candidate &candidate) {
  std::vector<Candidate> variants;
  if (!mayBeContext(problem, candidate))
    return variants;
  bool hadNone = candidate.mesh.tokenRanks() == 1;
  for (Axis axis : {Axis::Tensor, Axis::Data, Axis::ShardedData}) {
    if (axis != Axis::Tensor && problem.space.tensorAxisIsOpen())
      continue;
    Candidate next = candidate;
    for (int64_t cp : divisorsOf(next.mesh.of(axis))) {
      if (cp == 1)
        continue;
      next = candidate;
      next.mesh.of(axis) /= cp;
      next.mesh.cp = cp;
      next.accumulation = next.batch / (next.mesh.dataRanks() * next.microBatch);
      if (!hadNone) {
        variants.push_back(next);
        continue;
      }
      for (const ZeroChoice &zero : problem.space.zeroChoices(next.mesh)) {
        next.zero = zero;
        variants.push_back(next);
      }
    }
  }
  return variants;
}

/// Returns the least seconds of communication of a micro-batch, in unknown positions.
static double anywhereSeconds(const BoundTables &tables, const Candidate &candidate,
                              const DataMode &mode, const WorkShare &total,
                              double recomputeSeconds) {
  const CostTables &costs = tables.costs;
  const MeshShape &mesh = candidate.mesh;
  int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  double kernels = total.forward + total.backward + total.weight;
  double between =
      leastKernelSeconds(tables, mesh, candidate.microBatch) - kernels -
      (tables.mostSaved(double(samples), 1) - tables.mostSaved(double(samples), double(devices)));
  if (mesh.ep == 1 || !costs.problem.space.tensorAxisIsPinned())
    between += tables.beyondBlocks(mesh.tp, samples) / double(mesh.cp * mesh.ep);
  // Beside tp, one collective may do for both.
  const double experts = tables.expertSeconds(mesh, candidate.microBatch);
  between = mesh.tp == 1 ? std::max(0.0, between) + experts : std::max(between, experts);
  return std::max(0.0, between) + costs.meshes.batchSumSeconds(mesh).total() +
         exposedDataSeconds(tables, candidate, mode, total, std::max(0.0, recomputeSeconds));
}

/// Returns a lower bound on the end of the step: the sum of scalars, the update, and reductions
/// that backward cannot hide.
static double endSeconds(const BoundTables &tables, const Candidate &candidate,
                         const DataMode &mode, const WorkShare &total, double recomputeSeconds) {
  const double scalars = leastScalarSeconds(tables.costs, candidate.mesh);
  double end = std::max(scalars, leastUpdateSeconds(tables, candidate, mode) +
                                     scalars / double(candidate.mesh.pp));
  const Cluster &cluster = tables.costs.problem.cluster;
  if (const double hidden = hidingFraction(cluster, candidate); hidden > 0 && std::isfinite(hidden))
    end += cluster.exposedSeconds(
        reduceStepSeconds(tables, candidate, mode),
        hidden * (total.backward + total.weight + std::max(0.0, recomputeSeconds)));
  return end;
}

/// Returns the bound of the candidate's own mesh; infinite if its kept values cannot fit.
static double boundOfMesh(const BoundTables &tables, const Candidate &candidate, double limit,
                          bool isFinal) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const MeshShape &mesh = candidate.mesh;
  const DataMode mode = boundMode(tables.costs, candidate);
  const int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  const double keptBytes = mostKeptBytes(tables, candidate, mode, limit);
  const double recomputeSeconds =
      keptBytes < 0 ? infinity : tables.keepBoundFor(devices, samples).leastSeconds(keptBytes);
  if (recomputeSeconds == infinity)
    return infinity;

  const DividedWork &kernels = tables.workFor(devices, samples);
  MicroBatchWork work{kernels, 0, recomputeSeconds};
  work.anywhere = anywhereSeconds(tables, candidate, mode, kernels.total, recomputeSeconds);
  const double accumulation = double(candidate.accumulation);
  // Each op lies wholly on one stage.
  double least =
      std::max(work.seconds() * accumulation / double(mesh.pp), kernels.largest * accumulation);
  const ScheduleChoice &choice = candidate.schedule;
  if (std::optional<double> waits =
          schedule::leastIdleShare(choice.kind(), choice.chunksPerStage, schedule::Chunking::Any))
    least = std::max(least, schedule::pipelineLowerBound(work.seconds(), mesh.pp,
                                                         candidate.accumulation, *waits));
  const double end = endSeconds(tables, candidate, mode, kernels.total, recomputeSeconds);
  if (mesh.pp > 1)
    least = leastPipelineSeconds(tables, candidate, work, least, limit - end, isFinal);
  return std::max(least + end, candidate.provenBound);
}

double refinedBound(const BoundTables &tables, const Candidate &candidate, double limit,
                    BoundMeshes meshes, bool isFinal) {
  double seconds = boundOfMesh(tables, candidate, limit, isFinal);
  if (meshes == BoundMeshes::WithContexts)
    for (const Candidate &variant : contextVariants(tables.costs.problem, candidate))
      if (seconds > candidate.provenBound)
        seconds = std::min(seconds, boundOfMesh(tables, variant, limit, isFinal));
  return std::min(std::max(seconds, candidate.provenBound), limit);
}

} // namespace tbc::planner

//===- SearcherStages.cpp - Stages on heterogeneous devices ---------------===//
//
// On a mixed cluster each stage is priced on its own devices. Bounds use the best value of all
// groups for each constant, so they hold for every plan. unlikeStagesBound() adds the share of the
// work that the slower stages must do.
//
//===----------------------------------------------------------------------===//

#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/search/Searcher.h"

#include <algorithm>
#include <limits>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

bool Searcher::mayLie(const MeshShape &mesh) const {
  return !problem.isMixed || keepsTypesApart(cluster, mesh.pp, mesh.numRanks() / mesh.pp);
}

Status Searcher::checkTypes() const {
  Status first = Status::ok();
  if (!problem.isMixed)
    return first;
  for (const MeshShape &mesh : space.meshes(job.gpus)) {
    Result<StageDevices> devices = StageDevices::make(cluster, mesh.pp, mesh.numRanks() / mesh.pp);
    if (devices)
      return Status::ok();
    if (first)
      first = devices.error();
  }
  return first;
}

double Searcher::scaled(const Candidate &candidate, int stage, double bytes) {
  if (!problem.isMixed)
    return bytes;
  int64_t limit = std::min(limitBytes, costs.meshes.clusterOf(candidate.mesh, stage).usableBytes());
  // Exactly at its own limit stays within the common limit, despite rounding.
  return bytes <= double(limit)
             ? std::min(bytes * (double(limitBytes) / double(limit)), double(limitBytes))
             : std::max(bytes * (double(limitBytes) / double(limit)), double(limitBytes) + 1);
}

/// Returns enough buckets for each chunk to end near its ideal position.
int Searcher::cutBuckets(int64_t chunks) { return int(std::clamp<int64_t>(chunks * 6, 48, 256)); }

std::vector<int> Searcher::cutPlaces(const Profile &profile, int64_t chunks) const {
  if (problem.pinned.begins.empty())
    return cutPositions(profile, cutBuckets(chunks));
  std::vector<int> places{0};
  places.insert(places.end(), problem.pinned.begins.begin(), problem.pinned.begins.end());
  places.push_back(profile.numForward);
  return places;
}

/// Returns the cutter for the stages of the candidate. Cutters are shared by candidates with the
/// same profile, number of chunks and devices.
const StageCutter &Searcher::cutterFor(const Candidate &candidate, const Profile &profile) {
  const int64_t pp = candidate.mesh.pp, numChunks = pp * candidate.schedule.chunksPerStage;
  const MeshStages &of = costs.meshes.stagesFor(candidate.mesh);
  if (of.devices.isUniform()) {
    const NetworkCost &network = of.networks->of(0);
    GroupShape ends = network.stageGroupShape({0, 1});
    return *cutters.get({&profile, numChunks, ends.nodes > 1, {}}, [&] {
      auto send = [&](double bytes) { return network.seconds(CollectiveKind::Send, ends, bytes); };
      return std::make_unique<StageCutter>(profile, cutPlaces(profile, numChunks), send,
                                           &counted.cuts);
    });
  }
  const std::array<int64_t, 3> arrangement = {candidate.mesh.numRanks() / pp,
                                              candidate.schedule.chunksPerStage,
                                              candidate.schedule.thereAndBack};
  return *cutters.get({&profile, numChunks, true, arrangement}, [&] {
    std::map<StageKind, int> numbers;
    std::vector<const Profile *> ofKinds;
    std::vector<int> kindOf;
    for (int stage : costs.schedules.chunksFor(candidate).stageOf) {
      auto [found, isNew] = numbers.try_emplace(of.devices.kindOf(stage), int(ofKinds.size()));
      if (isNew)
        ofKinds.push_back(costs.models.mixOn(candidate, profile, stage).kept);
      kindOf.push_back(found->second);
    }
    auto send = [&](double bytes) { // of neighbours, the slowest
      double slowest = 0;
      for (int stage = 1; stage < int(pp); ++stage)
        slowest = std::max(slowest, of.networks->sendSeconds(stage - 1, stage, bytes));
      return slowest;
    };
    return std::make_unique<StageCutter>(ofKinds, kindOf, cutPlaces(profile, numChunks), send,
                                         &counted.cuts);
  });
}

/// Returns a lower bound on the kernel seconds of the slowest stage in a step, for any assignment
/// of ops to stages. For any stage weights with sum 1, the slowest stage takes at least the
/// weighted mean. In this mean, an op costs at least its minimum of weight times time. The weights
/// are the stages' speeds; this is exact if all ops differ by the same factor. Example: stages of
/// speed 1 and 3 share 4 s of work of the slower one: at least 1 s.
double Searcher::unlikeStagesBound(const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  const StageDevices &devices = costs.meshes.stagesFor(mesh).devices;
  if (devices.isUniform())
    return 0;
  const int64_t samples = candidate.microBatch * mesh.ep, parts = mesh.tp * mesh.cp * mesh.ep;
  const double perMicroBatch =
      unlikeStages.get({samples, parts, mesh.pp, mesh.numRanks() / mesh.pp}, [&] {
        struct Kind {
          std::vector<double> ofOps;
          double total = 0, saved = 0;
          int64_t stages = 0;
        };
        std::map<int, Kind> kinds; // by group: kernels do not see nodes
        for (int stage = 0; stage < int(mesh.pp); ++stage) {
          Kind &kind = kinds[devices.kindOf(stage).group];
          if (kind.stages++ > 0)
            continue;
          kind.ofOps = wholeWorkFor(samples).dividedSeconds(devices.of(stage), parts);
          for (double seconds : kind.ofOps)
            kind.total += seconds;
          MostSaved saved = mostSavedByRunningAgain(costs.models.graphFor(1), devices.of(stage));
          kind.saved =
              saved.launchSeconds + saved.movementSeconds * double(samples) / double(parts);
        }
        double speeds = 0, least = 0;
        for (const auto &[group, kind] : kinds)
          speeds += double(kind.stages) / kind.total;
        for (size_t op = 0; op < kinds.begin()->second.ofOps.size(); ++op) {
          double ofOp = std::numeric_limits<double>::infinity();
          for (const auto &[group, kind] : kinds)
            ofOp = std::min(ofOp, kind.ofOps[op] / kind.total / speeds);
          least += ofOp;
        }
        for (const auto &[group, kind] : kinds) // recomputation may save this
          least -= kind.saved / kind.total / speeds;
        return least;
      });
  return std::max(0.0, perMicroBatch) * double(candidate.accumulation);
}

} // namespace tbc::planner

//===- Pins.h - What the user's decisions leave open -----------------------===//

#ifndef TBC_PLANNER_CORE_PINS_H
#define TBC_PLANNER_CORE_PINS_H

#include "planner/core/Buckets.h"
#include "planner/core/Search.h"

#include <optional>
#include <vector>

namespace tbc::planner {

/// One way to spread parameters over data ranks.
struct ZeroChoice {
  int zero = 0;
  bool keepGathered = false;
  bool operator==(const ZeroChoice &o) const {
    return zero == o.zero && keepGathered == o.keepGathered;
  }
};

/// A pipeline schedule and where its chunks lie.
struct ScheduleChoice {
  std::string schedule = "none";
  int chunksPerStage = 1;
  bool thereAndBack = false;

  /// As in a plan: empty for one chunk per stage.
  std::vector<int> chunkStage(int64_t stages) const;
  bool operator==(const ScheduleChoice &o) const {
    return schedule == o.schedule && chunksPerStage == o.chunksPerStage &&
           thereAndBack == o.thereAndBack;
  }
};

/// The pins, checked against the job and against each other.
class Space {
public:
  /// `experts`: what the sizes of axis ep have to divide (reshard::commonExperts).
  ///
  /// Errors: Usage, naming both of two pins that contradict each other.
  static Result<Space> make(const Job &job, const Pins &pins, int64_t experts = 1);

  /// The meshes to look at on `devices` devices, in a fixed order.
  std::vector<MeshShape> meshes(int64_t devices) const;
  /// The ways to spread parameters on `mesh`.
  std::vector<ZeroChoice> zeroChoices(const MeshShape &mesh) const;
  /// Micro-batches that divide `batch` over the mesh's data ranks, ascending; empty if none does.
  std::vector<int64_t> microBatches(const MeshShape &mesh, int64_t batch) const;
  std::vector<std::string> recomputeModes() const;
  /// Whether blocks may differ in what they recompute: where that is open, or a number of them is
  /// pinned.
  bool mayRecomputeInPart() const { return pins.recompute == "auto" || blocks; }
  bool recomputeIsOpen() const { return recompute == "auto"; }
  /// The number of graph blocks that are pinned to recompute.
  std::optional<int64_t> blocksAgain() const { return blocks; }
  /// What lies on the host. Where that is open (auto), nothing does: see search().
  bool offloadsStates() const { return offload == "optimizer" || offload == "all"; }
  bool offloadsResiduals() const { return offload == "residuals" || offload == "all"; }
  bool offloadsAsNeeded() const { return pins.offloadsAsNeeded && !away; }
  /// The number of graph blocks whose residuals are pinned to lie there; none: all.
  std::optional<int64_t> blocksAway() const { return away; }
  /// What is pinned of buckets and gathers ahead.
  const OverlapPins &overlap() const { return overlapPins; }
  std::vector<ScheduleChoice> schedules(const MeshShape &mesh) const;
  /// The forms of context parallelism that the pins allow; one without meaning without cp.
  std::vector<reshard::ContextForm> contexts(const MeshShape &mesh) const;
  /// Whether --strategy speaks of such a mesh.
  bool allowed(const MeshShape &mesh) const;
  bool orderIsOpen() const { return pins.sequenceOrder.empty(); }
  bool isZigzag() const { return pins.sequenceOrder == "zigzag"; }
  bool meshIsPinned() const { return !pins.mesh.empty(); }
  /// Whether the user asked for tensor parallelism by name.
  bool tensorAxisIsPinned() const;
  /// Whether meshes with every size of tp are looked at.
  bool tensorAxisIsOpen() const;
  const MeshShape &pinnedMesh() const { return pinned; }

private:
  Space(const Job &job, const Pins &pins, int64_t experts)
      : job(job), pins(pins), experts(experts) {}
  Status readMesh();
  Status checkStrategy();
  Status checkSchedule() const;
  Status readRecompute();
  Status readOffload();
  Status readOverlap();
  Status checkContext() const;
  // Before conditions.
  std::vector<ZeroChoice> allZeroChoices(const MeshShape &mesh) const;
  std::vector<int64_t> allMicroBatches(const MeshShape &mesh, int64_t batch) const;
  std::vector<ScheduleChoice> allSchedules(const MeshShape &mesh) const;

  Job job;
  Pins pins;
  int64_t experts;
  MeshShape pinned;
  std::string recompute = "auto";
  std::optional<int64_t> blocks;
  std::string offload = "none";
  std::optional<int64_t> away;
  OverlapPins overlapPins;
};

/// The way to spread parameters that a --strategy stands for, if it does.
std::optional<ZeroChoice> zeroOfStrategy(const std::string &strategy);

/// The divisors of `n`, ascending.
std::vector<int64_t> divisorsOf(int64_t n);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PINS_H

//===- Space.h - The search space left open by the user -------------------===//

#ifndef TBC_PLANNER_PINS_SPACE_H
#define TBC_PLANNER_PINS_SPACE_H

#include "planner/cost/Buckets.h"
#include "planner/pins/ExecutorSizes.h"

#include <optional>
#include <vector>

namespace tbc::planner {

/// A pipeline schedule and the placement of its chunks.
struct ScheduleChoice {
  std::optional<ScheduleKind> schedule; // none without pipeline
  int chunksPerStage = 1;
  bool thereAndBack = false;

  /// Returns the stage of each chunk, as in a plan: empty for one chunk per stage. Example: 2
  /// stages with 2 V-shaped chunks each give 0, 1, 1, 0.
  std::vector<int> chunkStage(int64_t stages) const;
  /// Returns the order of a stage, with a pipeline or without.
  ScheduleKind kind() const { return schedule.value_or(schedule::kindWithoutPipeline); }
  bool operator==(const ScheduleChoice &o) const {
    return schedule == o.schedule && chunksPerStage == o.chunksPerStage &&
           thereAndBack == o.thereAndBack;
  }
};

/// --recompute, read.
struct RecomputePins {
  std::optional<RecomputeMode> mode;
  std::optional<int64_t> blocks; ///< recomputed graph blocks
  bool isOpen() const { return !mode; }
  /// Whether blocks may differ in recomputation: if it is open, or a number of blocks is pinned.
  bool mayBePartial() const { return isOpen() || blocks; }
};

/// --offload, read.
struct OffloadPins {
  /// Whether states or residuals are offloaded to the host. If open (auto), false: see search().
  bool states = false, residuals = false;
  /// Whether the search offloads as few residuals as necessary; not if `blocks` is pinned.
  bool isAsNeeded = false;
  std::optional<int64_t> blocks; ///< graph blocks with offloaded residuals; unset: all
};

/// The pins, checked against the job and against each other: the search space.
class Space {
public:
  /// `experts`: the sizes of axis ep divide this number (reshard::commonExperts). `meeting`: the op
  /// that joins the samples of the batch (reshard::firstMeeting), so a step has one micro-batch;
  /// empty without one.
  ///
  /// `runnable`: the plans of the executor, which decisions without pins keep to. `sizes`: those
  /// that its axes divide.
  ///
  /// Errors: Usage, naming both of two contradictory pins, or the size that an asked axis does not
  /// divide.
  static Result<Space> make(const Job &job, const Pins &pins, int64_t experts = 1,
                            const std::string &meeting = "", const RunnablePlans &runnable = {},
                            const ExecutorSizes &sizes = {});

  /// Returns the possible meshes on `devices` devices, in a fixed order.
  std::vector<MeshShape> meshes(int64_t devices) const;
  /// Returns the ways to distribute parameters on `mesh`.
  std::vector<ZeroChoice> zeroChoices(const MeshShape &mesh) const;
  /// Returns the micro-batches that divide `batch` over the mesh's data ranks, ascending; may be
  /// empty. Example: a batch of 24 on 4 data ranks gives 1, 2, 3, 6.
  std::vector<int64_t> microBatches(const MeshShape &mesh, int64_t batch) const;
  std::vector<RecomputeMode> recomputeModes() const;
  const RecomputePins &recompute() const { return recomputePins; }
  const OffloadPins &offload() const { return offloadPins; }
  /// The pins of buckets and prefetch.
  const OverlapPins &overlap() const { return overlapPins; }
  std::vector<ScheduleChoice> schedules(const MeshShape &mesh) const;
  /// Whether some blocks may be recomputed, and others not.
  bool mayBePartial() const;
  /// Returns the allowed forms of context parallelism; without cp one arbitrary form.
  std::vector<reshard::ContextForm> contexts(const MeshShape &mesh) const;
  /// Whether `mesh` agrees with --strategy and, if it is open, with the executor.
  bool allowed(const MeshShape &mesh) const;
  bool orderIsOpen() const { return pins.sequenceOrder.empty(); }
  bool isZigzag() const { return pins.sequenceOrder == "zigzag"; }
  bool meshIsPinned() const { return !pins.mesh.empty(); }
  /// Whether the user requested tensor parallelism (TP) by name.
  bool tensorAxisIsPinned() const;
  /// Whether every size of tp is tried.
  bool tensorAxisIsOpen() const;
  const MeshShape &pinnedMesh() const { return pinned; }

private:
  Space(const Job &job, const Pins &pins, int64_t experts, const std::string &meeting,
        const RunnablePlans &runnable, const ExecutorSizes &sizes)
      : job(job), pins(pins), experts(experts), meeting(meeting), runnable(runnable), sizes(sizes) {
  }
  Status readMesh();
  Status checkStrategy();
  Status readSchedule();
  Status checkContext() const;
  // Before conditions.
  std::vector<ZeroChoice> allZeroChoices(const MeshShape &mesh) const;
  std::vector<ScheduleChoice> allSchedules(const MeshShape &mesh) const;

  Job job;
  Pins pins;
  int64_t experts;
  std::string meeting;
  RunnablePlans runnable;
  ExecutorSizes sizes;
  MeshShape pinned;
  std::optional<ScheduleKind> schedule; // pinned
  RecomputePins recomputePins;
  OffloadPins offloadPins;
  OverlapPins overlapPins;
};

/// Returns the divisors of `n`, ascending.
std::vector<int64_t> divisorsOf(int64_t n);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_SPACE_H

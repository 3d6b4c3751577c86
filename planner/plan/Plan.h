//===- Plan.h - The planner's answer, and its file ------------------------===//
//
// Plain C++. plan.json: canonical, versioned, editable by hand.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_PLAN_H
#define TBC_PLANNER_PLAN_PLAN_H

#include "planner/devices/Cluster.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/plan/Layout.h"
#include "planner/plan/OpPlacement.h"
#include "planner/plan/SearchLimits.h"
#include "planner/reshard/Overlap.h"
#include "planner/reshard/Rebatch.h"
#include "runtime/schedule/Schedule.h"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

using schedule::ScheduleKind;

struct ModelNames;

/// What the step does with the model.
enum class Task { Train };
enum class Optimizer { AdamW, Adam, Sgd, SgdMomentum };
/// The element type of parameters and matmuls. Optimizer states and master weights are f32.
enum class Precision { F32, BF16, F16 };

/// Returns the word of flags and of plan.json. Example: "train", "sgd-momentum", "bf16".
const char *name(Task task);
const char *name(Optimizer optimizer);
const char *name(Precision precision);
/// All words of flags and of plan.json.
const std::vector<std::string> &taskNames();
const std::vector<std::string> &optimizerNames();
const std::vector<std::string> &precisionNames();
/// The inverse of name(); nullopt for any other text.
std::optional<Task> parseTask(const std::string &word);
std::optional<Optimizer> parseOptimizer(const std::string &word);
std::optional<Precision> parsePrecision(const std::string &word);

/// The training job, without the graph.
struct Job {
  std::string modelPath;                   // as written in the plan: relative to it
  std::string modelHash;                   // of the model file
  std::string stepHash;                    // of the canonical step functions
  std::map<std::string, int64_t> bindings; // --dim NAME=VALUE and other bindings
  Task task = Task::Train;
  std::string loss = "cross-entropy";
  Optimizer optimizer = Optimizer::AdamW;
  /// Given numbers of the step: of the optimizer, the loss, clipping.
  std::map<std::string, double> settings;
  Precision precision = Precision::BF16;
  int64_t gpus = 1;
  int64_t globalBatch = 1;     // samples per step
  bool batchIsDefault = false; // true: it may be rounded up to fit the mesh
  int64_t sequence = 0;        // tokens per sample; 0 for a model without sequences

  /// For people; may be null.
  std::shared_ptr<const ModelNames> names;

  /// Bytes of optimizer state per parameter element.
  int64_t stateBytesPerElement() const;
};

/// Returns the bytes per element of the f32 master copy of a parameter with `parameterBytes` per
/// element. Example: 4 for bf16, 0 for f32.
int64_t masterBytes(int64_t parameterBytes);

/// The axes of the mesh, in the order of ranks: pp slowest, tp fastest.
struct MeshShape {
  int64_t pp = 1, dp = 1, fsdp = 1, ep = 1, cp = 1, tp = 1;

  /// Every axis with its name, in this order.
  std::array<std::pair<const char *, int64_t>, 6> axes() const {
    return {{{"pp", pp}, {"dp", dp}, {"fsdp", fsdp}, {"ep", ep}, {"cp", cp}, {"tp", tp}}};
  }
  std::array<int64_t, 6> sizes() const { return {pp, dp, fsdp, ep, cp, tp}; }
  /// Returns the size of the axis `name`, or nullptr.
  int64_t *find(const std::string &name);
  /// Returns the number of axes longer than 1.
  int numAxes() const {
    int count = 0;
    for (int64_t size : sizes())
      count += size > 1;
    return count;
  }
  int64_t numRanks() const { return pp * dataRanks() * cp * tp; }
  /// The number of ranks with different samples.
  int64_t dataRanks() const { return dp * fsdp * ep; }
  /// The number of ranks with different tokens; a gradient is a sum over them.
  int64_t tokenRanks() const { return dataRanks() * cp; }
  bool operator==(const MeshShape &o) const { return sizes() == o.sizes(); }
  /// Returns the mesh with only the axes longer than 1.
  reshard::Mesh mesh() const;
};

/// The names of all axes, of the batch axes, and of the axes that split tokens.
const std::vector<std::string> &axisNames();
const std::vector<std::string> &dataAxisNames();
const std::vector<std::string> &tokenAxisNames();

/// Describes a mesh. Example: "dp=2 fsdp=4 tp=2"; "one device" for a mesh of one.
std::string toString(const MeshShape &mesh);

/// The placement of the tensors of some forward ops, equal for all of them. An op without a
/// decision splits its batch over dp, fsdp and ep and nothing else. Backward ops follow their
/// forward op. A decision that does not name cp leaves it to the plan's form of context
/// parallelism.
struct OpDecision {
  OpPlacement placement;
  std::vector<std::string> ops; // ids
};

struct ParameterDecision {
  int zero = 0;
  bool keepGathered = false;
  std::vector<std::string> zeroAxes;
  std::vector<std::string> reduceAxes;
  bool operator==(const ParameterDecision &o) const {
    return zero == o.zero && keepGathered == o.keepGathered && zeroAxes == o.zeroAxes &&
           reduceAxes == o.reduceAxes;
  }
};

struct ParameterOverride {
  ParameterDecision decision;
  std::vector<std::string> parameters; // names
};

/// Data in host memory instead of device memory, in the terms of --offload.
struct Offload {
  bool optimizer = false; ///< states and master weights, but for scalars of the whole step
  /// The graph blocks with offloaded residuals, if any. For people only; `ops` decides.
  std::optional<BlockShare> residuals;
  std::vector<std::string> ops; ///< forward ops whose kept results are on the host

  bool isNone() const { return !optimizer && !residuals && ops.empty(); }
};

/// Returns "none", "optimizer", "residuals", "residuals 3/8" or "optimizer and residuals".
std::string offloadText(const Offload &offload);
/// The inverse of offloadText(), without ops; nullopt for any other text.
std::optional<Offload> parseOffload(const std::string &text);

/// A line of the memory table of one stage.
struct MemoryLine {
  std::string name;
  int64_t bytes = 0;
};

struct StageMemory {
  std::vector<MemoryLine> lines; // of the device
  std::vector<MemoryLine> host;  // in its share of the host's memory; empty if unused
  int64_t totalBytes() const;
  int64_t hostBytes() const;
};

/// Seconds of one step on the slowest rank, by purpose. They add up to the step time.
struct TimeSplit {
  double compute = 0;    // forward and backward kernels
  double recompute = 0;  // recomputed forward kernels
  double operands = 0;   // exposed collectives between ops (tensor parallelism)
  double data = 0;       // exposed gathers of parameters and reductions of gradients
  double pipeline = 0;   // sends and bubble
  double update = 0;     // optimizer
  double host = 0;       // copies between device and host
  double hiddenData = 0; // data communication behind compute: not part of the sum
  double total() const { return compute + recompute + operands + data + pipeline + update + host; }
};

/// One line of the list of collectives of a step; `seconds` is one execution.
struct CollectiveLine {
  reshard::CollectiveCount count;
  double seconds = 0;
};

/// Whether the memory for a plan suffices, the surest first. The need is an interval
/// (memoryInterval). Example: 182 to 194 GiB with the middle at 188 GiB; a limit of 190 GiB is
/// Tight.
enum class MemoryVerdict {
  Fits,      ///< the upper end of the interval is within the limit
  Tight,     ///< only the middle is
  DoesNotFit ///< not even the middle is
};

/// Returns the word of plan.json: "fits", "tight", "does not fit".
const char *name(MemoryVerdict verdict);

struct Prediction {
  double stepSeconds = 0;
  double lowSeconds = 0, highSeconds = 0;
  int64_t peakBytes = 0; // on the fullest stage, context and margins included
  int64_t lowBytes = 0, highBytes = 0;
  int64_t limitBytes = 0;
  int64_t hostBytes = 0, hostLimitBytes = 0;        // the same for a device's share of the host
  MemoryVerdict memory = MemoryVerdict::DoesNotFit; // of both
  double modelFlops = 0; // of one step over all ranks, without recomputation
  double mfu = 0;
  std::vector<StageMemory> stages;
  TimeSplit time;
  int slowestStage = 0;
  std::vector<double> stageSeconds; // forward and backward of one micro-batch, by chunk
  std::vector<CollectiveLine> collectives;

  bool fits() const { return memory == MemoryVerdict::Fits; }
  /// Whether the verdict is `goal` or better.
  bool meets(MemoryVerdict goal) const { return memory <= goal; }
};

/// Another scored configuration, with its disadvantage.
struct Alternative {
  MeshShape mesh;
  ParameterDecision data;
  reshard::ContextForm context = reshard::ContextForm::AllGather;
  int64_t microBatch = 1, accumulation = 1;
  std::optional<ScheduleKind> schedule; // as in a plan
  Recompute recompute;
  std::vector<int> chunkStage; // as in a plan
  Offload offload;             // without ops
  double stepSeconds = 0;
  int64_t peakBytes = 0;
  MemoryVerdict memory = MemoryVerdict::DoesNotFit;
  std::string note;
};

enum class Origin { Pinned, Solved, Propagated, Forced };

struct Reason {
  std::string decision; // "mesh", "zero", ...
  std::string value;
  Origin origin = Origin::Solved;
  std::string text;
};

/// A repeated part of the graph, for the layer table.
struct BlockRow {
  std::string name;    // modules of the model, a star where repeats differ; else as firstOp
  std::string firstOp; // id, a star where repeats differ
  int64_t count = 1;
  int64_t ops = 0;
  int64_t parameters = 0;    // elements, of one repeat
  std::string split;         // e.g. "tp: 4 of 9 matmuls by column/row"
  double seconds = 0;        // forward and backward of one micro-batch, one repeat
  int64_t residualBytes = 0; // per micro-batch, one repeat
};

/// The largest prefetch depth in gathers. It exceeds the gathers of any block, so it means all.
inline constexpr int64_t maxPrefetch = 4096;

struct Plan {
  Job job;
  Cluster cluster;
  MeshShape mesh;
  /// The form of context parallelism for ops with several loops over the sequence (only with cp >
  /// 1).
  reshard::ContextForm context = reshard::ContextForm::AllGather;
  bool zigzag = false; // the order of the sequence over cp; false: contiguous
  int64_t idleDevices = 0;
  int64_t memoryLimitBytes = 0;         // --memory-limit; 0: what the cluster allows
  int64_t microBatch = 1;               // samples per data rank
  int64_t accumulation = 1;             // micro-batches per step and data rank
  std::optional<ScheduleKind> schedule; // none without pipeline
  /// The stage (pp coordinate) of each chunk; empty: one chunk per stage, in order.
  std::vector<int> chunkStage;
  std::vector<OpDecision> ops;
  ParameterDecision parameterDefault;
  std::vector<ParameterOverride> parameterOverrides;
  /// The id of the first forward op of each chunk, in forward order; the first entry is the first
  /// op of all. Without virtual stages a chunk is a stage.
  std::vector<std::string> stages;
  /// For people: the module at the start of each chunk; empty, or as many as `stages`.
  std::vector<std::string> stageNames;
  Recompute recompute;                   // for people only; the ops decide
  std::vector<std::string> recomputeOps; // forward ops with recomputed results
  Offload offload;
  reshard::OverlapSettings overlap;

  Layout layout; // follows from the decisions above; may be empty
  Prediction prediction;
  /// Lower bound on the step time, in this cost model, of any plan for this job with this memory
  /// verdict or a better one.
  double lowerBoundSeconds = 0;
  SearchEnd searchEnd = SearchEnd::Complete;
  std::string bindingConstraint;
  std::vector<BlockRow> blocks;
  std::vector<Alternative> alternatives;
  std::vector<std::string> warnings; // shown first, before the plan
  std::vector<std::string> assumptions;
  std::vector<Reason> reasons;

  int64_t numChunks() const { return chunkStage.empty() ? mesh.pp : int64_t(chunkStage.size()); }
  /// Returns the memory limit of one device: the pinned limit, or the cluster's usable memory if
  /// less.
  int64_t limitBytes() const { return limitBytes(cluster); }
  /// The same for a stage on `devices`.
  int64_t limitBytes(const Cluster &devices) const;
};

/// Returns the canonical text of plan.json: sorted keys, shortest numbers that read back equal,
/// final newline.
std::string writePlan(const Plan &plan);

/// Returns a cluster as canonical JSON, with the same keys as in a plan.
std::string writeCluster(const Cluster &cluster);

/// Reads plan.json. `source` names it in messages.
/// Errors: Usage with the key if the text is not JSON, is truncated or has another version. The
/// same if a key is unknown, missing, or has the wrong type or range, or if predictions contradict
/// each other (PlanCheck.h).
Result<Plan> readPlan(const std::string &text, const std::string &source);

/// Returns the contradiction between the plan's schedule and its stages, chunks and micro-batches,
/// or "".
std::string whyInvalidSchedule(const Plan &plan);

/// Returns the word of flags and of plan.json. Example: "none" without pipeline, "1f1b".
std::string scheduleWord(std::optional<ScheduleKind> schedule);

/// Describes the schedule with its chunks. Example: "1f1b", "interleaved x2" (two chunks per
/// stage), "zero-bubble V" (V-shaped).
std::string scheduleText(const Plan &plan);

/// A plan applied to the graph of its model: the complete input of `derive`.
struct PlannedStep {
  /// Rebatched to microBatch * dataRanks, with chunks set. Backward is split into dgrad and wgrad
  /// if the schedule requires it. Recomputed ops are cloned into the backward phase.
  reshard::Graph graph;
  reshard::Assignment assignment;
  /// The ranks of a sequence have its parts in zigzag order.
  bool isZigzag = false;
  /// Indices of the recomputed forward ops, ascending, in the input graph. `graph` has the same
  /// indices.
  std::vector<int> reexecuted;
  /// Per op of `graph`: the forward op of a clone, else -1.
  std::vector<int> cloneOf;
  bool isRecomputed(int op) const { return cloneOf[op] >= 0; }
};

/// Errors: Usage if the plan names an op, parameter, axis or loop that is not in the graph, or a
/// split that the loop's size does not allow.
Result<PlannedStep> applyPlan(const reshard::Graph &graph, const Plan &plan);

using reshard::withBatch;

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLAN_H

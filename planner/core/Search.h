//===- Search.h - The best plan for a job, with reasons and a bound --------===//
//
// Plain C++. Enumerates meshes, micro-batches, ZeRO modes, recomputation, schedules and stage cuts;
// places strategies by an exact solver; scores in closed form; re-evaluates the best few exactly.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_SEARCH_H
#define TBC_PLANNER_CORE_SEARCH_H

#include "planner/core/Plan.h"
#include "planner/core/SearchCounts.h"
#include "planner/core/SearchLimits.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// A required or forbidden decision.
struct Condition {
  /// A mesh axis, zero, micro-batch, accumulation, recompute, schedule or virtual-stages.
  std::string decision;
  std::string value; // a number; for zero also shard-grad-op; a mode or a schedule
  bool isForbidden = false;
  std::string flag = {}; // as given by the user, e.g. "--forbid tp"; empty: from no such flag

  /// Whether `plan` has this decision, forbidden or not.
  bool isIn(const Plan &plan) const;
};

/// A requirement or prohibition for the ops matched by a name.
struct OpPin {
  std::string glob; // matched as in matchingOps() of OpPins.h
  /// The required behaviour:
  /// - tp: split over tp, in the ops that multiply with a parameter matrix; if there are no such
  ///   ops, in all ops that allow it.
  /// - column, row: split by a result dim, or by a summed dim, of that matrix.
  /// - whole: not split over tp.
  /// - recompute, keep: recomputed or kept for backward, regardless of --recompute.
  /// - begin: a pipeline stage begins with the first matched op that may begin one. With such pins,
  ///   no other op begins a stage.
  std::string spec;
  bool isForbidden = false;
};

/// Returns the words allowed in OpPin::spec.
const std::vector<std::string> &opPinWords();
/// Returns the pin as given by the user. Example: "--pin *.mlp.*=tp".
std::string toString(const OpPin &pin);

/// Reads "tp=8" or "tp=8,recompute=none". Errors: Usage, with a suggestion for an unknown word.
Result<std::vector<Condition>> parseConditions(const std::string &text);

/// Describes conditions. Example: "tp=8 and not recompute=none".
std::string toString(const std::vector<Condition> &conditions);

/// A callback with the number of finished configurations and their total.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// The most devices of a job.
constexpr int64_t mostDevices = int64_t(1) << 20;

/// The user's decisions. Empty fields are open.
struct Pins {
  /// --mesh: axes in the given order; unnamed axes have size 1. Empty: open.
  std::vector<std::pair<std::string, int64_t>> mesh;
  /// --strategy: auto ddp zero1 zero2 zero3 fsdp shard-grad-op hybrid-shard tp pp hybrid.
  std::string strategy = "auto";
  std::optional<int> zero;
  std::optional<int64_t> microBatch;
  std::string schedule;                 // "", gpipe, 1f1b, interleaved, zero-bubble
  std::optional<int64_t> virtualStages; // chunks per pipeline stage
  std::string placement;                // of chunks: "", loop, v
  std::string recompute = "auto";       // auto, none, selective, full
  std::string offload = "none";         // none, optimizer, residuals, all, auto; residuals:8, all:8
  /// Offloads the residuals of the fewest blocks that make the plan fit.
  bool offloadsAsNeeded = false;
  std::string context;             // of cp: "", ring, all-gather, all-to-all
  std::string sequenceOrder;       // over cp: "", contiguous, zigzag
  std::string bucketSize = "auto"; // auto, none, or bytes such as 25MiB
  std::string prefetch = "auto";   // auto, none, or a number of gathers
  std::optional<int64_t> memoryLimitBytes;
  /// The required verdict; --memory-risk sets Tight. search() takes the best tight plan if no plan
  /// fits.
  MemoryVerdict memoryGoal = MemoryVerdict::Fits;
  /// --tie-percent / 100. Plans with times within this fraction are equals, and the simplest of
  /// them is the answer (Families.h). Example: with 0.02, 73.2 ms equals 72.0 ms.
  double tie = 0;
  SearchBudget budget;
  /// --time-limit: search() then returns the best plan found so far.
  Deadline deadline;
  int top = 5; // number of kept runners-up, with the answer
  /// Number of search threads; 0: as in Workers. The plan does not depend on it.
  int threads = 0;
  /// Conditions on the open decisions.
  std::vector<Condition> conditions;
  std::vector<OpPin> ops;
};

/// Adds a --pin or, if `isForbidden`, --forbid argument to `pins`. The forms are "tp=8"
/// (parseConditions) and "GLOB=SPEC" (OpPin). --forbid also accepts a decision alone, and removes
/// it. Example: "pp" forbids pipelines. Errors: Usage, with a suggestion for an unknown word.
Status addPin(const std::string &text, bool isForbidden, Pins &pins);

/// Reads a mesh as "dp=2,fsdp=4", or in the form of PyTorch's init_device_mesh,
/// `[[2,4],["dp","fsdp"]]`. Accepts axis names of other frameworks (data, tensor, pipeline,
/// dp_replicate, dp_shard ..). One size may be -1; it is computed from `gpus` and the others.
/// Errors: Usage.
///
/// Example: "data=-1,tensor=2" with 8 GPUs is dp=4,tp=2.
Result<std::vector<std::pair<std::string, int64_t>>> parseMesh(const std::string &text,
                                                               int64_t gpus = 0);
/// Reads "40GiB", "512MiB", "80GB" or plain bytes. Errors: Usage.
Result<int64_t> parseBytes(const std::string &text);
/// Returns the values of --strategy.
const std::vector<std::string> &strategyNames();

struct SearchAnswer {
  Plan plan;
  SearchCounts counts;
};

/// Returns the fastest plan that fits; without one, the fastest tight plan; without either, the
/// reason.
///
/// Errors: Usage for an impossible mesh or contradictory pins (both are named). NoFeasiblePlan if
/// no plan fits: the missing resource and amount, the stage, and the cheapest changes that make a
/// plan fit, each of them tested.
Result<SearchAnswer> search(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, const Progress &progress = {});

/// Returns the cost of pinned decisions: the fastest plan that fits, else the fastest tight plan,
/// else the plan nearest to fitting. No runners-up, reasons or bound. Errors: Usage as in search;
/// NoFeasiblePlan if the graph has too few ops for the pins.
Result<Plan> costOf(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                    const Pins &pins);

/// Returns the prediction for a plan in its current form (perhaps edited by hand), by the same
/// code.
Result<Prediction> predict(const reshard::Graph &graph, const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCH_H

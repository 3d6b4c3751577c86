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

/// One decision that a plan shall have, or not have.
struct Condition {
  /// An axis of the mesh, zero, micro-batch, accumulation, recompute, schedule, virtual-stages.
  std::string decision;
  std::string value; // a number; of zero also shard-grad-op; a mode or a schedule
  bool isForbidden = false;
  std::string flag = {}; // as the user gave it, e.g. "--forbid tp"; empty: not by a flag of its own

  /// Whether `plan` has it, forbidden or not.
  bool isIn(const Plan &plan) const;
};

/// What ops that a name matches shall do, or not do.
struct OpPin {
  std::string glob; // matchingOps() in OpPins.h says of which names
  /// tp: split over tp, those that multiply with a matrix of parameters, or where none does, all
  /// that can be; column, row: by a dim of that matrix that stays, or that is summed over; whole:
  /// not split over tp. recompute, keep: what backward needs of them is computed again, or kept,
  /// whatever --recompute says of the others. begin: a stage of the pipeline begins with the first
  /// of them that can be the first of one, and where no pin says so, none does.
  std::string spec;
  bool isForbidden = false;
};

/// The words that an OpPin may have as its spec.
const std::vector<std::string> &opPinWords();
/// As the user gave it: "--pin *.mlp.*=tp".
std::string toString(const OpPin &pin);

/// Reads "tp=8" or "tp=8,recompute=none". Errors: Usage, with a suggestion for an unknown word.
Result<std::vector<Condition>> parseConditions(const std::string &text);

/// e.g. "tp=8 and not recompute=none".
std::string toString(const std::vector<Condition> &conditions);

/// Told now and then how many of the configurations to look at have been.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// The most devices that a job may have.
constexpr int64_t mostDevices = int64_t(1) << 20;

/// What the user has decided already. Empty fields are open.
struct Pins {
  /// --mesh: axes in the order given; axes that are not named have size 1. Empty: open.
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
  /// Of residuals that may be on the host, those of as few blocks are as fit.
  bool offloadsAsNeeded = false;
  std::string context;             // of cp: "", ring, all-gather, all-to-all
  std::string sequenceOrder;       // over cp: "", contiguous, zigzag
  std::string bucketSize = "auto"; // auto, none, or bytes such as 25MiB
  std::string prefetch = "auto";   // auto, none, or a number of gathers
  std::optional<int64_t> memoryLimitBytes;
  /// The verdict that a plan shall have; --memory-risk asks for Tight. search() takes the best
  /// tight plan where none fits.
  MemoryVerdict memoryGoal = MemoryVerdict::Fits;
  /// --tie-percent / 100: plans are equals whose times differ by no more than this fraction, and
  /// the simplest of them is the answer (Families.h). 0.02: 73.2 ms is as good as 72.0 ms.
  double tie = 0;
  SearchBudget budget;
  /// --time-limit: the best that was found until then.
  Deadline deadline;
  int top = 5; // runners-up kept, the answer included
  /// Threads that search; 0: as Workers. The plan does not depend on it.
  int threads = 0;
  /// Of what is open otherwise.
  std::vector<Condition> conditions;
  std::vector<OpPin> ops;
};

/// Adds to `pins` what --pin or, if `isForbidden`, --forbid is given: "tp=8" and the like, as
/// parseConditions; "GLOB=SPEC" (OpPin); of --forbid also a decision alone, which is then as if it
/// did not exist ("pp": no pipeline). Errors: Usage, with a suggestion for an unknown word.
Status addPin(const std::string &text, bool isForbidden, Pins &pins);

/// Reads a mesh as "dp=2,fsdp=4", or as PyTorch's init_device_mesh has it, `[[2,4],["dp","fsdp"]]`.
/// Axes may have the names of other frameworks (data, tensor, pipeline, dp_replicate, dp_shard ..).
/// One size may be -1: what the others leave of `gpus`. Errors: Usage.
///
/// Example: "data=-1,tensor=2" of 8 GPUs is dp=4,tp=2.
Result<std::vector<std::pair<std::string, int64_t>>> parseMesh(const std::string &text,
                                                               int64_t gpus = 0);
/// Reads "40GiB", "512MiB", "80GB" or plain bytes. Errors: Usage.
Result<int64_t> parseBytes(const std::string &text);
/// The values that --strategy takes.
const std::vector<std::string> &strategyNames();

struct SearchAnswer {
  Plan plan;
  SearchCounts counts;
};

/// The fastest plan that fits, or where none does the fastest tight one, or why there is none.
///
/// Errors: Usage for a mesh that is impossible or pins that contradict each other (both are named);
/// NoFeasiblePlan where nothing fits: what is short, by how much, on which stage, and the cheapest
/// changes that would make it fit, each of them tried.
Result<SearchAnswer> search(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, const Progress &progress = {});

/// The fastest plan that fits, or where none does the fastest tight one, or the one that is nearest
/// to fitting: what pinned decisions cost. Without runners-up, reasons and bound.
/// Errors: Usage as of search; NoFeasiblePlan where the graph has too few ops for the pins.
Result<Plan> costOf(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                    const Pins &pins);

/// The prediction for a plan as it stands (hand-edited, say), by the same code.
Result<Prediction> predict(const reshard::Graph &graph, const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCH_H

//===- Pins.h - The user's decisions --------------------------------------===//

#ifndef TBC_PLANNER_PINS_PINS_H
#define TBC_PLANNER_PINS_PINS_H

#include "planner/plan/Plan.h"
#include "planner/plan/SearchLimits.h"

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
  /// - megatron, megatron-sp: as in megatronSplits() of Megatron.h.
  /// - recompute, keep: recomputed or kept for backward, regardless of --recompute.
  /// - begin: a pipeline stage begins with the first matched op that may begin one. With such pins,
  ///   no other op begins a stage.
  std::string spec;
  bool isForbidden = false;
};

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
  std::string gatherSize = "auto"; // the same
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

  bool recomputeIsOpen() const { return recompute == "auto"; }
  bool offloadIsOpen() const { return offload == "auto"; }
};

/// One way to distribute parameters over data ranks.
struct ZeroChoice {
  int zero = 0;
  bool keepGathered = false;
  bool operator==(const ZeroChoice &o) const {
    return zero == o.zero && keepGathered == o.keepGathered;
  }
};

/// Returns the parameter distribution of a --strategy, if it defines one.
std::optional<ZeroChoice> zeroOfStrategy(const std::string &strategy);

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

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_PINS_H

//===- Sensitivity.h - The worth of other hardware and jobs ------------------===//
//
// Plain C++. The answer of `tbc explain --sensitivity`: plans of the same job after one change
// each. It is written as text and as JSON, and read again by `tbc report`.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_REPORT_SENSITIVITY_H
#define TBC_PLANNER_REPORT_SENSITIVITY_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// The best plan for a job on a cluster.
struct SizedPlan {
  int64_t gpus = 0, batch = 0; // samples
  int64_t sequence = 0;        // tokens of a sample; 0 without sequences
  double stepSeconds = 0, lowSeconds = 0, highSeconds = 0;
  int64_t peakBytes = 0;
  std::string decisions; // describe()

  /// Returns tokens per second; samples per second without sequences.
  double perSecond() const {
    return double(batch) * double(sequence > 0 ? sequence : 1) / stepSeconds;
  }
};

enum class Worth {
  Gain,      ///< more tokens per second
  Loss,      ///< fewer
  Tie,       ///< within 2 %, and the intervals overlap
  Impossible ///< no plan
};
/// Returns the word of the JSON: "gain", "loss", "tie", "impossible".
const char *name(Worth worth);

struct SensitivityRow {
  std::string subject; // for example "memory"
  std::string change;  // for example "+1 GiB"
  Worth worth = Worth::Impossible;
  std::string reason; // why impossible
  SizedPlan plan;     // after the change, if possible
  double ratio = 0;   // of tokens per second, to those before
  /// Whether mesh, ZeRO, micro-batch, schedule or recompute mode differ.
  bool planChanges = false;
};

struct Sensitivity {
  std::string model, cluster;
  std::string fingerprint; // layout.decisions of the plan
  SizedPlan plan;          // as in plan.json
  SizedPlan base;          // planned again without a change
  /// By subject, the largest effect first. Rows of one subject follow each other.
  std::vector<SensitivityRow> rows;

  std::string unit() const { return base.sequence > 0 ? "tokens/s" : "samples/s"; }
};

/// Returns the worth of `after` compared with `before`.
Worth worthOf(const SizedPlan &before, const SizedPlan &after);

/// Sorts the rows by the largest effect of their subject. Rows of one subject keep their order.
void sortByEffect(std::vector<SensitivityRow> &rows);

/// A table of at most 80 columns, with a bar for each row.
std::string toText(const Sensitivity &answer);
/// {"format": "tbc-explain", "version": 1, "about": "sensitivity", ..}
std::string toJson(const Sensitivity &answer);
/// Reads the output of toJson(). `source` names it in messages. Errors: Usage, with the key.
Result<Sensitivity> readSensitivity(const std::string &text, const std::string &source);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_SENSITIVITY_H

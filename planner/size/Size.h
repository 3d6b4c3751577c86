//===- Size.h - Devices, days and money for a number of tokens ---------------===//
//
// Plain C++. Plans one training run on clusters of several types and sizes, and finds the Pareto
// front of its days, device-hours and money.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SIZE_SIZE_H
#define TBC_PLANNER_SIZE_SIZE_H

#include "planner/devices/Cluster.h"
#include "planner/pins/Pins.h"
#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"
#include "planner/size/Prices.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// The middle of an estimate and its interval.
struct Estimate {
  double low = 0, middle = 0, high = 0;
  Estimate times(double factor) const { return {low * factor, middle * factor, high * factor}; }
};

struct SizeQuestion {
  const reshard::Graph &graph;
  Job job;           // its devices and batch are set for each size
  double tokens = 0; // of the whole training; samples for a model without sequences
  std::vector<Cluster> clusters;
  Pins pins;
  int64_t fromDevices = 8, toDevices = 1024;
  /// The largest batch in tokens that trains well (the critical batch). If set, each size has the
  /// largest batch within it that its devices can share.
  std::optional<double> maxBatchTokens;
  std::optional<double> deadlineDays, budget;
  PriceList prices;
  /// Sets the devices of a job and its batch, unless maxBatchTokens decides it.
  std::function<void(Job &job, int64_t devices)> setDevices;
  /// Told before each search: "64 x h100-sxm", its number from 1, and the number of searches.
  std::function<void(const std::string &size, int index, int count)> tell;
};

/// Whether a limit is kept.
enum class Kept {
  Surely,   ///< even at the upper end of the estimate
  Probably, ///< at its middle
  Not,
};
/// Returns the word of the JSON: "surely", "probably", "not".
const char *name(Kept kept);

/// One cluster of one size.
struct SizeRow {
  std::string cluster;
  int64_t devices = 0, batch = 0; // samples
  double batchTokens = 0;
  double stepSeconds = 0, mfu = 0;
  int64_t steps = 0;
  std::string decisions; // describe()
  Estimate days, deviceHours;
  std::optional<Estimate> money;        // with a price
  std::optional<Kept> deadline, budget; // if asked; the budget with a price
  bool isFront = false;
};

/// A size without a plan.
struct OmittedSize {
  std::string cluster;
  int64_t devices = 0;
  std::string reason; // the first line of the planner's message
};

struct SizeAnswer {
  std::string model, precision;
  double tokens = 0;
  int64_t sequence = 0;
  std::optional<double> maxBatchTokens, deadlineDays, budget;
  std::string currency;
  std::vector<std::pair<std::string, Price>> prices; // of the clusters, those that have one
  bool pricesAreExamples = false;
  std::vector<SizeRow> rows; // by cluster as asked, then by devices
  std::vector<OmittedSize> omitted;
  std::vector<std::string> unpriced; // clusters

  /// Whether the row keeps the deadline and the budget, at the middle. Without a price it is not
  /// known to keep a budget.
  bool isAllowed(const SizeRow &row) const {
    return row.deadline != Kept::Not && (!budget || (row.money && row.budget != Kept::Not));
  }
  std::string unit() const { return sequence > 0 ? "tokens" : "samples"; }
};

/// Returns the device counts of a question: from, twice that, .., and to.
std::vector<int64_t> sizesBetween(int64_t from, int64_t to);

/// Returns the samples of a batch for `devices` within `most` samples: the largest multiple of the
/// devices, or else the largest power of 2. Example: 500 samples on 64 devices are 448; on 1,024
/// devices 256.
int64_t batchWithin(int64_t most, int64_t devices);

/// Marks the rows that no other row beats or equals in days, device-hours and money. Money counts
/// between two rows that both have it. Of equal rows the first is marked.
void markFront(std::vector<SizeRow> &rows);

/// Plans every size. Errors: Usage if a batch has no sample, or if no size has a plan (with the
/// reasons).
Result<SizeAnswer> sizesOf(const SizeQuestion &question);

/// Returns the cheapest allowed row, by money if all have it, else by device-hours; nullptr if no
/// row is allowed. The fastest is the other way round.
const SizeRow *cheapestOf(const SizeAnswer &answer);
const SizeRow *fastestOf(const SizeAnswer &answer);

/// A table of at most 80 columns. `all`: with the rows that are not on the front.
std::string toText(const SizeAnswer &answer, bool all);
/// {"format": "tbc-size", "version": 1, ..}
std::string toJson(const SizeAnswer &answer);
/// Days against money (device-hours, if some cluster has no price), as a picture.
std::string toSvg(const SizeAnswer &answer);

/// Reads "15T", "300B", "4M", "1e12". Returns nullopt for anything else, and for less than 1.
std::optional<double> parseCount(const std::string &text);
/// Reads "30d", "2w", "36h" as days.
std::optional<double> parseDays(const std::string &text);

} // namespace tbc::planner

#endif // TBC_PLANNER_SIZE_SIZE_H

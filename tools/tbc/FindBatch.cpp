//===- FindBatch.cpp - Find the largest batch that fits -------------------------===//

#include "tools/tbc/FindBatch.h"
#include "planner/report/Summary.h"
#include "planner/reshard/Rebatch.h"
#include "planner/support/Format.h"

#include <algorithm>

namespace tbc::cli {

using planner::formatBytes;
using planner::Plan;

namespace {

/// The search stops at this batch, even if it fits.
constexpr int64_t mostSamples = int64_t(1) << 30;

class BatchSearch {
public:
  BatchSearch(const BatchQuestion &question, const planner::Job &job)
      : question(question), job(job), pins(question.pins), unit(std::max<int64_t>(1, job.gpus)) {
    if (!pins.mesh.empty())
      unit = 1;
    for (const auto &[name, size] : pins.mesh) {
      const std::optional<mesh::Axis> axis = mesh::parseAxis(name);
      if (axis != mesh::Axis::Tensor && axis != mesh::Axis::Context)
        unit *= size;
      if (axis == mesh::Axis::Pipeline && reshard::firstMeeting(question.graph) < 0)
        accumulation = size;
    }
    pins.conditions.push_back({"accumulation", std::to_string(accumulation), false,
                               "--pin accumulation=" + std::to_string(accumulation)});
  }

  /// Returns the plan for `units` units: the fastest that fits, or the closest to fitting.
  Result<Plan> planFor(int64_t units) const {
    planner::Job asked = job;
    asked.globalBatch = units * unit;
    asked.batchIsDefault = false;
    return planner::costOf(question.graph, asked, question.cluster, pins);
  }

  const BatchQuestion &question;
  const planner::Job &job;
  planner::Pins pins;
  int64_t unit; // samples; every batch is a multiple
  int64_t accumulation = 1;
};

} // namespace

/// Returns the largest item of memory on the fullest stage of `plan`.
static std::string largestLine(const Plan &plan) {
  if (plan.prediction.stages.empty())
    return "nothing";
  const std::vector<planner::MemoryLine> &lines =
      plan.prediction.stages[planner::fullestStage(plan)].lines;
  auto largest = std::max_element(lines.begin(), lines.end(),
                                  [](const auto &a, const auto &b) { return a.bytes < b.bytes; });
  return largest == lines.end() ? "nothing"
                                : largest->name + " (" + formatBytes(double(largest->bytes)) + ")";
}

static std::string tooMuch(const Plan &plan) {
  return std::to_string(plan.job.globalBatch) + " would take " +
         formatBytes(double(plan.prediction.peakBytes)) + " of " +
         formatBytes(double(plan.prediction.limitBytes)) + " per device, most of it " +
         largestLine(plan);
}

/// Returns the largest number of units that fits by the memory model.
static Result<int64_t> searchByModel(const BatchSearch &search, FoundBatch &found,
                                     const std::function<void(const std::string &)> &tell) {
  int64_t fits = 0, fails = 0;
  std::string why;
  for (int64_t units = 1; fails == 0 || fails - fits > 1;
       units = fails == 0 ? 2 * units : fits + (fails - fits) / 2) {
    if (units * search.unit > mostSamples) {
      found.assumptions.push_back("batch " + std::to_string(fits * search.unit) +
                                  ": memory sets no limit before " + std::to_string(mostSamples) +
                                  " samples (--find-batch-size)");
      return fits;
    }
    tell("looking for the largest batch: " + std::to_string(units * search.unit));
    Result<Plan> plan = search.planFor(units);
    if (!plan)
      return plan.error();
    if (plan->prediction.meets(search.pins.memoryGoal)) {
      fits = units;
      continue;
    }
    fails = units;
    why = tooMuch(*plan);
  }
  if (fits == 0)
    return Error{ErrorCode::NoFeasiblePlan, "--find-batch-size: a batch of " + why};
  found.assumptions.push_back("batch " + std::to_string(fits * search.unit) +
                              ", the largest that fits without accumulation");
  found.assumptions.push_back("batch " + why);
  return fits;
}

Result<FoundBatch> findBatch(const BatchQuestion &question, const planner::Job &job,
                             const std::function<void(const std::string &)> &tell) {
  BatchSearch search(question, job);
  FoundBatch found;
  Result<int64_t> most = searchByModel(search, found, tell);
  if (!most)
    return most.error();
  // Among batches that fit by the model, searches the largest that fits in a trial run.
  int64_t units = *most, fits = 0, fails = *most + 1;
  while (question.isTried && fails - fits > 1) {
    Result<Plan> plan = search.planFor(units);
    if (!plan)
      return plan.error();
    std::string samples = std::to_string(units * search.unit);
    tell("trying a batch of " + samples);
    Result<TrialOutcome> outcome = tryPlan(*plan, question.modelFile);
    if (!outcome)
      return outcome.error();
    (outcome->fits ? fits : fails) = units;
    found.assumptions.push_back(
        "a trial of batch " + samples + (outcome->fits ? " took " : " did not fit: it took ") +
        formatBytes(double(outcome->peakBytes)) + " of " +
        formatBytes(double(outcome->limitBytes)) + " on the fullest rank, predicted " +
        formatBytes(double(outcome->predictedBytes)));
    units = fits + (fails - fits) / 2;
  }
  if (question.isTried && fits == 0)
    return Error{ErrorCode::NoFeasiblePlan,
                 "--find-batch-size --trial: " + found.assumptions.back()};
  found.samples = (question.isTried ? fits : *most) * search.unit;
  found.pins = search.pins;
  return found;
}

} // namespace tbc::cli

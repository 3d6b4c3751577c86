//===- PlanCheck.cpp - Consistency of a plan's predictions ----------------===//

#include "planner/plan/PlanCheck.h"
#include "planner/plan/ChunkFile.h"
#include "planner/plan/PlanDevices.h"
#include "planner/plan/PlanFile.h"
#include "planner/plan/PlanNames.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace tbc::planner {

using Json = nlohmann::json;

/// Tolerance: compilers and processors may round differently.
static constexpr double roundingFraction = 1e-9;

static bool isAbout(double a, double b) {
  return std::abs(a - b) <= roundingFraction * std::max(std::abs(a), std::abs(b));
}

static bool isWithin(double value, double low, double high) {
  return (value >= low || isAbout(value, low)) && (value <= high || isAbout(value, high));
}

/// Returns a number in JSON form.
static std::string text(double value) { return Json(value).dump(); }
static std::string text(int64_t value) { return std::to_string(value); }

template <typename Number>
static std::string outside(const std::string &key, Number value, Number low, Number high,
                           const std::string &interval) {
  if (isWithin(double(value), double(low), double(high)))
    return "";
  return "key \"" + key + "\" is " + text(value) + ", outside of its interval of " + text(low) +
         " to " + text(high) + " (" + interval + ")";
}

std::string whyInconsistent(const Plan &plan) {
  const Prediction &p = plan.prediction;
  if (std::string why = outside("step_seconds", p.stepSeconds, p.lowSeconds, p.highSeconds,
                                "prediction.low_seconds, high_seconds");
      !why.empty())
    return why;
  if (std::string why = outside("peak_bytes", p.peakBytes, p.lowBytes, p.highBytes,
                                "prediction.low_bytes, high_bytes");
      !why.empty())
    return why;
  if (!isAbout(p.stepSeconds, p.time.total()))
    return "key \"step_seconds\" is " + text(p.stepSeconds) +
           ", but the parts in prediction.time add up to " + text(p.time.total());
  auto isPeak = [&](const StageMemory &stage) { return stage.totalBytes() == p.peakBytes; };
  if (!p.stages.empty() && std::none_of(p.stages.begin(), p.stages.end(), isPeak))
    return "key \"peak_bytes\" is " + text(p.peakBytes) +
           ", but no stage's lines in prediction.stages add up to that (those of the first to " +
           text(p.stages[0].totalBytes()) + ")";
  if (plan.lowerBoundSeconds > p.stepSeconds && !isAbout(plan.lowerBoundSeconds, p.stepSeconds))
    return "key \"lower_bound_seconds\" is " + text(plan.lowerBoundSeconds) +
           ", more than step_seconds, which is " + text(p.stepSeconds);
  return whyWorkIsInconsistent(p.chunks);
}

/// Returns why the predicted limit of a device is not that of the plan, or "".
static std::string whyLimitIsStale(const Plan &plan) {
  const StageDevices devices = stageDevices(plan);
  std::set<int64_t> limits;
  for (int stage = 0; stage < plan.mesh.pp; ++stage)
    limits.insert(plan.limitBytes(devices.of(stage)));
  if (limits.count(plan.prediction.limitBytes))
    return "";
  return "key \"prediction.limit_bytes\" is " + text(plan.prediction.limitBytes) +
         ", but memory_limit_bytes (" + text(plan.memoryLimitBytes) + ") and the cluster give " +
         text(*limits.begin());
}

MemoryVerdict memoryVerdict(const Prediction &p) {
  if (p.peakBytes > p.limitBytes || p.hostBytes > p.hostLimitBytes)
    return MemoryVerdict::DoesNotFit;
  return p.highBytes > p.limitBytes ? MemoryVerdict::Tight : MemoryVerdict::Fits;
}

/// Returns why the verdict on memory does not follow from the predicted bytes, or "".
static std::string whyVerdictIsStale(const Prediction &p) {
  const MemoryVerdict verdict = memoryVerdict(p);
  if (p.memory == verdict)
    return "";
  return "key \"memory\" is \"" + std::string(name(p.memory)) + "\", but " + text(p.peakBytes) +
         " bytes (up to " + text(p.highBytes) + ") of " + text(p.limitBytes) + " are \"" +
         name(verdict) + "\"";
}

std::string whyStale(const Plan &plan) {
  if (std::string why = whyLayoutIsStale(plan); !why.empty())
    return why;
  std::string why = whyLimitIsStale(plan);
  if (why.empty())
    why = whyVerdictIsStale(plan.prediction);
  return why.empty() ? "" : why + "; tbc explain PLAN --derive FILE derives it again";
}

/// Returns the key of the first leaf of `a` with another value in `b`, or "".
static std::string firstDifference(const Json &a, const Json &b, const std::string &key) {
  if (a.is_number() && b.is_number())
    return isAbout(a.get<double>(), b.get<double>()) ? "" : key;
  if (a.type() != b.type() || a.size() != b.size())
    return key;
  if (a.is_array()) {
    for (size_t i = 0; i < a.size(); ++i)
      if (std::string found = firstDifference(a[i], b[i], key + "[" + std::to_string(i) + "]");
          !found.empty())
        return found;
    return "";
  }
  if (a.is_object()) {
    for (const auto &[name, value] : a.items()) {
      std::string path = key.empty() ? name : key;
      path += key.empty() ? "" : "." + name;
      if (!b.contains(name))
        return path;
      if (std::string found = firstDifference(value, b.at(name), path); !found.empty())
        return found;
    }
    return "";
  }
  return a == b ? "" : key;
}

/// Returns the value at a path of firstDifference; for a list or object, its size.
static std::string valueAt(const Json &json, const std::string &path) {
  const Json *at = &json;
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find_first_of(".[]", begin), path.size());
    std::string word = path.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty())
      continue;
    if (at->is_array() ? at->size() <= std::stoul(word) : !at->contains(word))
      return "missing";
    at = at->is_array() ? &at->at(std::stoul(word)) : &at->at(word);
  }
  return at->is_structured() ? std::to_string(at->size()) + " entries" : at->dump();
}

std::string whyNotDerived(const Plan &plan, const Prediction &prediction, const Layout &layout) {
  Plan again = plan;
  again.prediction = prediction;
  if (!plan.layout.isEmpty())
    again.layout = layout;
  if (plan.prediction.chunks.empty())
    again.prediction.chunks.clear();
  Json said = Json::parse(writePlan(plan)), made = Json::parse(writePlan(again));
  std::string key;
  // The most prominent keys first.
  for (const char *name : {"step_seconds", "peak_bytes", "fits", "memory"})
    if (key.empty())
      key = firstDifference(said.at(name), made.at(name), name);
  if (key.empty())
    key = firstDifference(said, made, "");
  if (key.empty())
    return "";
  return "key \"" + key + "\" is " + valueAt(said, key) + ", but the plan's decisions give " +
         valueAt(made, key);
}

} // namespace tbc::planner

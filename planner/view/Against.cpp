//===- Against.cpp - A measured step beside the predicted one --------------===//

#include "planner/view/Against.h"

#include "planner/view/Kineto.h"
#include "planner/view/Nsight.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace tbc::planner {

using Json = nlohmann::json;

static const char *const stepGroup = "step";
static const char *const sendGroup = "send";
static const char *const waitGroup = "wait for other stages";

static std::string firstWord(const std::string &text) { return text.substr(0, text.find(' ')); }
static const std::string kernelPrefix = "kernels of ";
/// All kernels, where a profile does not say what they are for.
static const char *const anyKernels = "kernels";
/// The backward of the last micro-batch is predicted with the others.
static std::string kernelGroup(std::string action) {
  using Kind = schedule::Action::Kind;
  if (action == schedule::name(Kind::LastBackward))
    action = schedule::name(Kind::Backward);
  return action.empty() ? anyKernels : kernelPrefix + action;
}

//===----------------------------------------------------------------------===//
// Measured
//===----------------------------------------------------------------------===//

namespace {

class ProfileReader {
public:
  ProfileReader(const std::string &source, const Plan &plan)
      : source(source), numRanks(plan.mesh.numRanks()) {}

  Result<MeasuredStep> read(const Json &trace) {
    for (const Json &event : trace.at("traceEvents"))
      if (Status status = check(event); !status)
        return status.error();
    if (slices.empty())
      return wrong("has no events");
    begin = slices.front()->at("ts").get<double>();
    for (const Json *slice : slices)
      begin = std::min(begin, slice->at("ts").get<double>());
    for (const Json *slice : slices)
      add(*slice);
    for (auto &[rank, end] : ends)
      profile.seconds[stepGroup] += end * 1e-6;
    for (int64_t rank : ranks) {
      Json name = {{"name", "process_name"}, {"ph", "M"}, {"pid", rank}};
      name["args"]["name"] = "rank " + std::to_string(rank) + ", measured";
      names.push_back(name);
    }
    for (Json &name : names)
      write(name);
    profile.ranks.assign(ranks.begin(), ranks.end());
    for (auto &[group, seconds] : profile.seconds)
      seconds /= double(ranks.size());
    return std::move(profile);
  }

private:
  Error wrong(const std::string &why) const {
    return Error{ErrorCode::Usage, source + ": not a profile of tbc run --profile: " + why};
  }

  static bool isNumber(const Json &event, const char *key) {
    return event.contains(key) && event.at(key).is_number() &&
           std::isfinite(event.at(key).get<double>());
  }

  Status check(const Json &event) {
    if (!event.is_object() || !event.contains("ph") || !event.contains("name") ||
        !event.at("name").is_string() || !isNumber(event, "pid"))
      return wrong("an event has no phase, name or rank");
    const int64_t rank = event.at("pid").get<int64_t>();
    if (rank < 0 || rank >= numRanks)
      return Error{ErrorCode::Usage, source + ": has rank " + std::to_string(rank) +
                                         ", but the plan has ranks 0 to " +
                                         std::to_string(numRanks - 1) +
                                         "; name the profile of a run of this plan"};
    if (event.at("ph") == "M") {
      if (event.at("name") != "process_name")
        names.push_back(event);
      return Status::ok();
    }
    const bool hasTexts = event.contains("cat") && event.at("cat").is_string() &&
                          event.contains("args") && event.at("args").is_object();
    if (event.at("ph") != "X" || !isNumber(event, "ts") || !isNumber(event, "dur") || !hasTexts)
      return wrong("event \"" + event.at("name").get<std::string>() +
                   "\" has no begin, length, category or arguments");
    ranks.insert(rank);
    slices.push_back(&event);
    return Status::ok();
  }

  static std::string argument(const Json &slice, const char *key) {
    const Json &arguments = slice.at("args");
    return arguments.contains(key) && arguments.at(key).is_string()
               ? arguments.at(key).get<std::string>()
               : "";
  }

  void add(const Json &slice) {
    const std::string category = slice.at("cat").get<std::string>();
    const double seconds = slice.at("dur").get<double>() * 1e-6;
    if (category == "kernel" || category == "region")
      profile.seconds[kernelGroup(firstWord(argument(slice, "block")))] += seconds;
    else if (category == "communication") {
      const std::string kind = argument(slice, "op");
      profile.seconds[kind == "recv" ? waitGroup : kind] += seconds;
    }
    double &end = ends[slice.at("pid").get<int64_t>()];
    end = std::max(end, slice.at("ts").get<double>() - begin + slice.at("dur").get<double>());
    Json moved = slice;
    moved["ts"] = slice.at("ts").get<double>() - begin;
    write(moved);
  }

  /// Keeps an event. Measured processes follow the predicted ones, which have the numbers of ranks.
  void write(Json &event) {
    event["pid"] = event.at("pid").get<int64_t>() + numRanks;
    const std::string text = event.dump(-1, ' ', true, Json::error_handler_t::replace);
    profile.events.push_back(text.substr(1, text.size() - 2));
  }

  const std::string &source;
  const int64_t numRanks;
  std::vector<const Json *> slices;
  std::vector<Json> names;
  std::set<int64_t> ranks;
  std::map<int64_t, double> ends; // microseconds after the begin, by rank
  double begin = 0;               // of the earliest event, in microseconds
  MeasuredStep profile;
};

} // namespace

Result<MeasuredStep> readProfile(const std::string &text, const std::string &source,
                                 const Plan &plan) {
  const Json trace = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace.at("traceEvents").is_array())
    return Error{ErrorCode::Usage,
                 source + ": not a profile of tbc run --profile: no list \"traceEvents\"; of "
                          "Nsight Systems give the export: nsys export --type sqlite FILE"};
  if (!isKineto(trace))
    return ProfileReader(source, plan).read(trace);
  auto converted = fromKineto(trace, source, plan);
  return converted ? ProfileReader(source, plan).read(*converted) : converted.error();
}

Result<MeasuredStep> readNsight(const std::string &path, const Plan &plan,
                                std::optional<int64_t> firstRank) {
  auto trace = fromNsight(path, plan, firstRank);
  return trace ? ProfileReader(path, plan).read(*trace) : trace.error();
}

//===----------------------------------------------------------------------===//
// Predicted
//===----------------------------------------------------------------------===//

/// Returns the kind of action that spends the time of a part on kernels.
static std::string actionOf(const std::string &part) {
  if (part == name(&StageSeconds::recompute))
    return "backward";
  if (part == name(&StageSeconds::recomputeWeight))
    return "weight";
  return part == name(&StageSeconds::updateStep) ? "update" : part;
}

std::map<std::string, double> groupSeconds(const StepTimeline &timeline, const Plan &plan,
                                           const std::vector<int64_t> &ranks) {
  const int64_t ranksPerStage = plan.mesh.numRanks() / plan.mesh.pp;
  std::map<std::string, double> groups;
  for (int64_t rank : ranks) {
    const StageTimeline &stage = timeline.stages[size_t(rank / ranksPerStage)];
    int64_t busyNs = 0;
    for (const Slice &slice : stage.slices) {
      const std::string category = slice.category;
      const double seconds = double(slice.endNs - slice.beginNs) * 1e-9;
      if (category == "action")
        busyNs += slice.endNs - slice.beginNs;
      else if (category == "kernel")
        groups[kernelGroup(actionOf(slice.part))] += seconds;
      else if (category == "communication")
        groups[firstWord(slice.name)] += seconds;
      else if (category == "send")
        groups[sendGroup] += seconds;
    }
    groups[stepGroup] += double(timeline.stepNs) * 1e-9;
    if (plan.mesh.pp > 1)
      groups[waitGroup] += double(timeline.stepNs - busyNs) * 1e-9;
  }
  for (auto &[group, seconds] : groups)
    seconds /= double(ranks.size());
  return groups;
}

std::vector<Residual> residualsOf(const StepTimeline &timeline, const Plan &plan,
                                  const MeasuredStep &profile) {
  std::map<std::string, Residual> byGroup;
  const bool hasAnyKernels = profile.seconds.count(anyKernels) > 0;
  for (const auto &[group, seconds] : groupSeconds(timeline, plan, profile.ranks)) {
    const bool isKernels = group.rfind(kernelPrefix, 0) == 0;
    byGroup[hasAnyKernels && isKernels ? anyKernels : group].predicted += seconds;
  }
  for (const auto &[group, seconds] : profile.seconds)
    byGroup[group].measured = seconds;
  std::vector<Residual> rows;
  for (auto &[group, residual] : byGroup) {
    residual.group = group;
    rows.push_back(residual);
  }
  std::sort(rows.begin(), rows.end(), [](const Residual &a, const Residual &b) {
    const double x = std::abs(a.difference()), y = std::abs(b.difference());
    return x != y ? x > y : a.group < b.group;
  });
  return rows;
}

Report compareProfile(const StepTimeline &timeline, const Plan &plan, const MeasuredStep &profile) {
  const std::vector<Residual> rows = residualsOf(timeline, plan, profile);
  Table table{"residuals",
              "seconds of one step, the mean of " + std::to_string(profile.ranks.size()) +
                  " ranks; the largest difference first",
              {{"group", "group"},
               {"predicted", "predicted"},
               {"measured", "measured"},
               {"difference", "difference"},
               {"ratio", "measured / predicted"}},
              {},
              ""};
  for (const Residual &row : rows) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f", row.measured / row.predicted);
    const bool isOnBoth = row.predicted > 0 && row.measured > 0;
    table.rows.push_back({Cell::of(row.group), Cell::seconds(row.predicted),
                          Cell::seconds(row.measured), Cell::seconds(row.difference()),
                          Cell::of(isOnBoth ? ratio : "-")});
  }
  Report report;
  report.tables = {table};
  return report;
}

} // namespace tbc::planner

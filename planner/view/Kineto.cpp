//===- Kineto.cpp - Profiles of PyTorch ------------------------------------===//

#include "planner/view/Kineto.h"

#include <cmath>
#include <cstdlib>
#include <set>

namespace tbc::planner {

using Json = nlohmann::json;

static const std::string stepPrefix = "ProfilerStep#";

static std::string textOf(const Json &event, const char *key) {
  return event.is_object() && event.contains(key) && event.at(key).is_string()
             ? event.at(key).get<std::string>()
             : "";
}

static bool isNumber(const Json &event, const char *key) {
  return event.contains(key) && event.at(key).is_number() &&
         std::isfinite(event.at(key).get<double>());
}

static bool isSlice(const Json &event) {
  return textOf(event, "ph") == "X" && isNumber(event, "ts") && isNumber(event, "dur");
}

static bool isOnDevice(const std::string &category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
}

bool isKineto(const Json &trace) {
  if (trace.contains("deviceProperties") || trace.contains("distributedInfo"))
    return true;
  for (const Json &event : trace.at("traceEvents"))
    if (textOf(event, "name").rfind(stepPrefix, 0) == 0)
      return true;
  return false;
}

std::string collectiveOfKernel(const std::string &kernel, const Plan &plan) {
  if (kernel.find("nccl") == std::string::npos)
    return "";
  const std::pair<const char *, const char *> kinds[] = {
      {"AllReduce", "all_reduce"},
      {"AllGather", "all_gather"},
      {"ReduceScatter", "reduce_scatter"},
      {"Broadcast", "broadcast"},
      {"Reduce", "reduce"},
      {"SendRecv", plan.mesh.pp > 1 ? "send" : "all_to_all"}};
  for (const auto &[word, kind] : kinds)
    if (kernel.find(word) != std::string::npos)
      return kind;
  return "";
}

/// Returns the last step, as the device saw it if the trace has that; nullptr without a step.
static const Json *lastStep(const Json &trace) {
  const Json *found = nullptr;
  std::pair<bool, long> best;
  for (const Json &event : trace.at("traceEvents")) {
    const std::string name = textOf(event, "name");
    if (name.rfind(stepPrefix, 0) != 0 || !isSlice(event))
      continue;
    std::pair<bool, long> key{textOf(event, "cat") == "gpu_user_annotation",
                              std::atol(name.c_str() + stepPrefix.size())};
    if (!found || key > best) {
      found = &event;
      best = key;
    }
  }
  return found;
}

static Result<int64_t> rankOf(const Json &trace, const std::string &source, const Plan &plan) {
  if (trace.contains("distributedInfo") && trace.at("distributedInfo").is_object() &&
      isNumber(trace.at("distributedInfo"), "rank"))
    return trace.at("distributedInfo").at("rank").get<int64_t>();
  if (plan.mesh.numRanks() == 1)
    return int64_t(0);
  return Error{ErrorCode::Usage, source + ": distributedInfo.rank is missing, so its rank is "
                                          "unknown; profile after init_process_group"};
}

Result<Json> fromKineto(const Json &trace, const std::string &source, const Plan &plan) {
  auto rank = rankOf(trace, source, plan);
  if (!rank)
    return rank.error();
  const Json *step = lastStep(trace);
  if (!step)
    return Error{ErrorCode::Usage, source + ": has no " + stepPrefix +
                                       "; give torch.profiler a schedule, and call step() of it "
                                       "after each training step"};
  const double begin = step->at("ts").get<double>(), end = begin + step->at("dur").get<double>();
  Json events = Json::array();
  events.push_back({{"ph", "X"},
                    {"name", step->at("name")},
                    {"cat", "block"},
                    {"pid", *rank},
                    {"tid", 0},
                    {"ts", begin},
                    {"dur", step->at("dur")},
                    {"args", Json::object()}});
  std::set<int64_t> streams;
  bool hasKernels = false;
  for (const Json &event : trace.at("traceEvents")) {
    const std::string category = textOf(event, "cat"), name = textOf(event, "name");
    if (!isOnDevice(category) || !isSlice(event))
      continue;
    const double time = event.at("ts").get<double>();
    if (time < begin || time >= end)
      continue;
    const int64_t stream = isNumber(event, "tid") ? event.at("tid").get<int64_t>() : 0;
    const std::string kind = collectiveOfKernel(name, plan);
    hasKernels |= category == "kernel";
    streams.insert(stream);
    events.push_back({{"ph", "X"},
                      {"name", name},
                      {"cat", category != "kernel" ? "copy"
                              : kind.empty()       ? "kernel"
                                                   : "communication"},
                      {"pid", *rank},
                      {"tid", stream + 1},
                      {"ts", time},
                      {"dur", event.at("dur")},
                      {"args", {{"op", kind}}}});
  }
  if (!hasKernels)
    return Error{ErrorCode::Usage, source + ": " + textOf(*step, "name") +
                                       " has no kernel; profile with ProfilerActivity.CUDA"};
  for (int64_t stream : streams)
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", *rank},
                      {"tid", stream + 1},
                      {"args", {{"name", "stream " + std::to_string(stream)}}}});
  return Json{{"traceEvents", std::move(events)}};
}

} // namespace tbc::planner

//===- Plan.cpp - The planner's answer as types ---------------------------===//

#include "planner/plan/Plan.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

int64_t Job::stateBytesPerElement() const {
  if (optimizer == "adamw" || optimizer == "adam")
    return 8;
  auto momentum = settings.find("momentum");
  bool hasBuffer = momentum == settings.end() ? optimizer == "sgd-momentum" : momentum->second != 0;
  return hasBuffer ? 4 : 0;
}

const char *name(GatherLifetime lifetime) {
  switch (lifetime) {
  case GatherLifetime::Always:
    return "always";
  case GatherLifetime::Step:
    return "step";
  case GatherLifetime::ForwardAndBackward:
    return "forward and backward";
  case GatherLifetime::Use:
    return "use";
  }
  return "";
}

int64_t masterBytes(int64_t parameterBytes) { return parameterBytes < 4 ? 4 : 0; }

int64_t Plan::limitBytes(const Cluster &devices) const {
  int64_t usable = devices.usableBytes();
  return memoryLimitBytes > 0 ? std::min(memoryLimitBytes, usable) : usable;
}

Mesh MeshShape::mesh() const {
  Mesh mesh;
  for (auto [name, size] : axes())
    if (size > 1)
      mesh.axes.push_back({name, size});
  return mesh;
}

int64_t *MeshShape::find(const std::string &name) {
  return name == "pp"     ? &pp
         : name == "dp"   ? &dp
         : name == "fsdp" ? &fsdp
         : name == "ep"   ? &ep
         : name == "cp"   ? &cp
         : name == "tp"   ? &tp
                          : nullptr;
}

const std::vector<std::string> &axisNames() {
  static const std::vector<std::string> names = {"pp", "dp", "fsdp", "ep", "cp", "tp"};
  return names;
}

const std::vector<std::string> &dataAxisNames() {
  static const std::vector<std::string> names = {"dp", "fsdp", "ep"};
  return names;
}

const std::vector<std::string> &tokenAxisNames() {
  static const std::vector<std::string> names = {"dp", "fsdp", "ep", "cp"};
  return names;
}

std::string toString(const MeshShape &mesh) {
  std::string text;
  for (const MeshAxis &axis : mesh.mesh().axes)
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.size);
  return text.empty() ? "one device" : text;
}

std::string whyInvalidSchedule(const Plan &plan) {
  if (plan.schedule.has_value() != (plan.mesh.pp > 1))
    return "must be none without pipeline stages, and a schedule with them";
  if (plan.mesh.pp == 1)
    return plan.chunkStage.empty() ? "" : "there are no pipeline stages to place chunks on";
  schedule::Pipeline pipeline = schedule::Pipeline::plain(int(plan.mesh.pp));
  if (!plan.chunkStage.empty())
    pipeline.chunkStage = plan.chunkStage;
  return schedule::whyInvalid(*plan.schedule, pipeline, plan.accumulation);
}

std::string scheduleWord(std::optional<ScheduleKind> schedule) {
  return schedule ? std::string(schedule::name(*schedule)) : "none";
}

std::string scheduleText(const Plan &plan) {
  const std::string word = scheduleWord(plan.schedule);
  size_t chunks = plan.chunkStage.size();
  if (chunks == 0 || plan.mesh.pp < 1)
    return word;
  int stages = int(plan.mesh.pp), each = int(chunks) / stages;
  if (plan.chunkStage == schedule::Pipeline::loop(stages, each).chunkStage)
    return word + " x" + std::to_string(each);
  if (plan.chunkStage == schedule::Pipeline::vee(stages, each).chunkStage)
    return word + " V" + (each == 2 ? "" : std::to_string(each));
  return word + " of " + std::to_string(chunks) + " chunks";
}

static int64_t sumOf(const std::vector<MemoryLine> &lines) {
  int64_t total = 0;
  for (const MemoryLine &line : lines)
    total += line.bytes;
  return total;
}

int64_t StageMemory::totalBytes() const { return sumOf(lines); }
int64_t StageMemory::hostBytes() const { return sumOf(host); }

const char *name(MemoryVerdict verdict) {
  return verdict == MemoryVerdict::Fits    ? "fits"
         : verdict == MemoryVerdict::Tight ? "tight"
                                           : "does not fit";
}

const char *name(SearchEnd end) {
  return end == SearchEnd::Complete ? "complete"
         : end == SearchEnd::Budget ? "budget"
                                    : "time limit";
}

std::string offloadText(const Offload &offload) {
  std::string text = offload.optimizer ? "optimizer" : "";
  if (offload.residuals)
    text += (text.empty() ? "residuals" : " and residuals") +
            (offload.residuals->isAll() ? std::string() : " " + residualsText(offload.residuals));
  return text.empty() ? "none" : text;
}

std::optional<Offload> parseOffload(const std::string &text) {
  for (bool optimizer : {false, true}) {
    Offload offload;
    offload.optimizer = optimizer;
    if (text == offloadText(offload))
      return offload;
    offload.residuals = BlockShare();
    const std::string all = offloadText(offload);
    if (text == all)
      return offload;
    const bool hasShare = text.rfind(all + " ", 0) == 0;
    if (hasShare && parseResiduals(text.substr(all.size() + 1), offload.residuals) &&
        text == offloadText(offload))
      return offload;
  }
  return std::nullopt;
}

} // namespace tbc::planner

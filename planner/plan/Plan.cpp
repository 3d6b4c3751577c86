//===- Plan.cpp - The planner's answer as types ---------------------------===//

#include "planner/plan/Plan.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

const char *name(Task task) {
  switch (task) {
  case Task::Train:
    return "train";
  }
  return nullptr;
}

const char *name(Optimizer optimizer) {
  switch (optimizer) {
  case Optimizer::AdamW:
    return "adamw";
  case Optimizer::Adam:
    return "adam";
  case Optimizer::SgdMomentum:
    return "sgd-momentum";
  case Optimizer::Sgd:
    return "sgd";
  }
  return nullptr;
}

const char *name(Precision precision) {
  switch (precision) {
  case Precision::BF16:
    return "bf16";
  case Precision::F16:
    return "f16";
  case Precision::F32:
    return "f32";
  }
  return nullptr;
}

/// Returns the names of all values of an enum: name() is null beyond the last one.
template <typename Enum> static std::vector<std::string> namesOf() {
  std::vector<std::string> names;
  for (int value = 0; name(Enum(value)); ++value)
    names.push_back(name(Enum(value)));
  return names;
}

template <typename Enum>
static std::optional<Enum> parse(const std::vector<std::string> &names, const std::string &word) {
  auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end())
    return std::nullopt;
  return Enum(found - names.begin());
}

const std::vector<std::string> &taskNames() {
  static const std::vector<std::string> names = namesOf<Task>();
  return names;
}

const std::vector<std::string> &optimizerNames() {
  static const std::vector<std::string> names = namesOf<Optimizer>();
  return names;
}

const std::vector<std::string> &precisionNames() {
  static const std::vector<std::string> names = namesOf<Precision>();
  return names;
}

std::optional<Task> parseTask(const std::string &word) { return parse<Task>(taskNames(), word); }

std::optional<Optimizer> parseOptimizer(const std::string &word) {
  return parse<Optimizer>(optimizerNames(), word);
}

std::optional<Precision> parsePrecision(const std::string &word) {
  return parse<Precision>(precisionNames(), word);
}

/// Whether plain SGD keeps a momentum, by its settings or else `otherwise`.
static bool hasMomentum(const Job &job, bool otherwise) {
  auto momentum = job.settings.find("momentum");
  return momentum == job.settings.end() ? otherwise : momentum->second != 0;
}

int64_t Job::stateBytesPerElement() const {
  switch (optimizer) {
  case Optimizer::AdamW:
  case Optimizer::Adam:
    return 8;
  case Optimizer::SgdMomentum:
    return hasMomentum(*this, true) ? 4 : 0;
  case Optimizer::Sgd:
    return hasMomentum(*this, false) ? 4 : 0;
  }
  return 0;
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

//===- Describe.cpp - Decisions of a plan in words ------------------------===//

#include "planner/plan/Describe.h"

#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

std::string zeroName(int zero, bool keepGathered) {
  if (zero == 0)
    return "DDP";
  return keepGathered ? "SHARD_GRAD_OP" : "ZeRO-" + std::to_string(zero);
}

std::string betweenOpsName(const MeshShape &mesh) {
  std::string names;
  for (auto [name, size] : {std::pair("tp", mesh.tp), {"cp", mesh.cp}, {"ep", mesh.ep}})
    if (size > 1)
      names += (names.empty() ? "" : " and ") + std::string(name);
  return names.empty() ? "communication between ops" : names + " communication";
}

std::string describe(const Plan &plan) {
  std::string text = toString(plan.mesh);
  if (plan.mesh.cp > 1)
    text += std::string(", ") + name(plan.context) + (plan.zigzag ? " zigzag" : "");
  if (plan.mesh.tokenRanks() > 1)
    text += ", " + zeroName(plan.parameterDefault.zero, plan.parameterDefault.keepGathered);
  text += ", micro-batch " + std::to_string(plan.microBatch) + " x " +
          std::to_string(plan.accumulation);
  if (plan.mesh.pp > 1)
    text += ", " + scheduleText(plan);
  text += ", recompute " + toString(plan.recompute);
  if (!plan.offload.isNone())
    text += ", offload " + offloadText(plan.offload);
  return text;
}

std::string describe(const Alternative &other) {
  Plan plan; // with the fields that describe() reads
  plan.mesh = other.mesh;
  plan.parameterDefault = other.data;
  plan.context = other.context;
  plan.microBatch = other.microBatch;
  plan.accumulation = other.accumulation;
  plan.schedule = other.schedule;
  plan.chunkStage = other.chunkStage;
  plan.recompute = other.recompute;
  plan.offload = other.offload;
  return describe(plan);
}

} // namespace tbc::planner

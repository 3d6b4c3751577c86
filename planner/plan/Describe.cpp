//===- Describe.cpp - Decisions of a plan in words ------------------------===//

#include "planner/plan/Describe.h"
#include "planner/plan/ScheduleText.h"

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
  for (Axis axis : {Axis::Tensor, Axis::Context, Axis::Expert})
    if (mesh.of(axis) > 1)
      names += (names.empty() ? "" : " and ") + std::string(mesh::row(axis).name);
  return names.empty() ? "communication between ops" : names + " communication";
}

/// Describes the decisions of a plan or an alternative; `data` and `zigzag` have other names there.
template <typename Decided>
static std::string describeDecisions(const Decided &decided, const ParameterDecision &data,
                                     bool zigzag) {
  const MeshShape &mesh = decided.mesh;
  std::string text = toString(mesh);
  if (mesh.cp > 1)
    text += std::string(", ") + name(decided.context) + (zigzag ? " zigzag" : "");
  if (mesh.tokenRanks() > 1)
    text += ", " + zeroName(data.zero, data.keepGathered);
  text += ", micro-batch " + std::to_string(decided.microBatch) + " x " +
          std::to_string(decided.accumulation);
  if (mesh.pp > 1)
    text += ", " + withChunks(scheduleWord(decided.schedule), decided.chunkStage, mesh.pp);
  text += ", recompute " + toString(decided.recompute);
  if (!decided.offload.isNone())
    text += ", offload " + offloadText(decided.offload);
  return text;
}

std::string describe(const Plan &plan) {
  return describeDecisions(plan, plan.parameterDefault, plan.zigzag);
}

std::string describe(const Alternative &other) {
  return describeDecisions(other, other.data, /*zigzag=*/false);
}

} // namespace tbc::planner

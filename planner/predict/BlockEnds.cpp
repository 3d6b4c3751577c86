//===- BlockEnds.cpp - Communication that no kernel of its block hides -----===//

#include "planner/predict/BlockEnds.h"

#include "planner/plan/MeshShape.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

bool touchesData(const Mesh &mesh, const std::vector<AxisRef> &axes) {
  const std::vector<std::string> &names = tokenAxisNames();
  return std::any_of(axes.begin(), axes.end(), [&](const AxisRef &axis) {
    return std::count(names.begin(), names.end(), mesh.axes[axis.axis].name) > 0;
  });
}

BlockEnds::BlockEnds(const Mesh &mesh, const Derivation &derivation, const Overlap &overlap) {
  auto lastMember = [&](const Reshard &reshard) {
    const int bucket = overlap.bucket(derivation, reshard);
    return bucket < 0 ? &reshard
                      : &derivation.reshards[size_t(overlap.buckets[bucket].reshards.back())];
  };
  std::map<BlockKey, const Reshard *> gathers, reductions, lastReductions;
  for (const Reshard &reshard : derivation.reshards) {
    const BlockKey block{reshard.chunk, reshard.phase};
    const bool isReduction =
        (reshard.where == Where::GradientMicro || reshard.where == Where::GradientLast) &&
        std::any_of(reshard.steps.begin(), reshard.steps.end(), [&](const Collective &step) {
          return step.kind != CollectiveKind::ShardSlice && touchesData(mesh, step.axes);
        });
    if (reshard.phase == Phase::Weight) // not told apart there
      continue;
    if (reshard.where == Where::ParameterUse)
      gathers.emplace(block, lastMember(reshard));
    else if (isReduction)
      (reshard.where == Where::GradientLast ? lastReductions : reductions)[block] =
          lastMember(reshard);
  }
  for (const auto *of : {&gathers, &reductions, &lastReductions})
    for (const auto &[block, reshard] : *of)
      ends.insert(reshard);
}

} // namespace tbc::planner

//===- Refusals.cpp - Jobs and pins that no search can answer --------------===//

#include "planner/search/Refusals.h"
#include "planner/graph/Values.h"
#include "planner/memory/Memory.h"
#include "planner/reshard/SequenceOrder.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <string>

using namespace tbc::reshard;

namespace tbc::planner {

Status checkBytes(const Graph &graph, const Job &job) {
  constexpr double mostBytes = double(int64_t(1) << 61);
  constexpr int64_t gradientBytes = 4;
  double bytes = 0;
  for (const GraphParameter &parameter : graph.parameters) {
    const TensorLayout &layout = graph.values[size_t(parameter.value)].layout;
    double perElement = double(layout.elementBytes);
    if (parameter.gradient >= 0)
      perElement += double(gradientBytes + masterBytes(layout.elementBytes) +
                           job.stateBytesPerElement(parameter));
    bytes += fullBytes(layout) / double(layout.elementBytes) * perElement;
  }
  if (bytes <= mostBytes)
    return Status::ok();
  return Error{ErrorCode::Usage, "parameters, gradients and optimizer states take " +
                                     formatBytes(bytes) + ", and tbc counts up to " +
                                     formatBytes(mostBytes) + "; choose a smaller model"};
}

Status checkContext(const Graph &graph, const Space &space, const Pins &pins) {
  int64_t cp = space.pinnedMesh().cp;
  if (cp == 1)
    return Status::ok();
  if (space.isZigzag())
    if (std::string why = whyNoZigzag(graph, cp); !why.empty())
      return Error{ErrorCode::Usage, "--sequence-order zigzag: " + why + "; use contiguous"};
  std::string why;
  for (ContextForm form : space.contexts(space.pinnedMesh())) {
    why = whyNoContext(graph, cp, form);
    if (why.empty())
      return Status::ok();
  }
  return Error{ErrorCode::Usage, "--mesh cp=" + std::to_string(cp) +
                                     (pins.context.empty() ? "" : " --context " + pins.context) +
                                     ": " + why};
}

Status checkBlocks(const Space &space, const Pins &pins, int64_t numBlocks) {
  if (space.recompute().blocks.value_or(0) > numBlocks)
    return Error{ErrorCode::Usage, "--recompute " + pins.recompute + ": the model has " +
                                       std::to_string(numBlocks) +
                                       " blocks that may be recomputed"};
  if (space.offload().blocks.value_or(0) > numBlocks)
    return Error{ErrorCode::Usage, "--offload " + pins.offload + ": the model has " +
                                       std::to_string(numBlocks) +
                                       " blocks whose residuals may be on the host"};
  return Status::ok();
}

Status keepBegun(std::vector<Candidate> &candidates, const PinnedOps &pinned) {
  auto wanted = int64_t(pinned.begins.size()) + 1;
  if (wanted == 1 || candidates.empty())
    return Status::ok();
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate &candidate) {
                                    return candidate.mesh.pp * candidate.schedule.chunksPerStage !=
                                           wanted;
                                  }),
                   candidates.end());
  if (!candidates.empty())
    return Status::ok();
  return Error{ErrorCode::Usage,
               toString(*pinned.beginner) + ": the pins begin " + std::to_string(wanted) +
                   " stages, the first included, and no configuration that is left has as many: "
                   "its pp times its virtual stages; pin where each of them begins"};
}

} // namespace tbc::planner

//===- ExecutorSizes.cpp - Sizes that the axes of an executor divide ------===//

#include "planner/pins/ExecutorSizes.h"
#include "planner/pins/Conditions.h"
#include "planner/pins/Megatron.h"
#include "planner/pins/Space.h"

#include <algorithm>
#include <numeric>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the number of tokens of a sample; 0 for a model without sequences.
static int64_t sequenceLength(const Graph &graph) {
  for (const GraphOp &op : graph.ops)
    for (const Loop &loop : op.loops)
      if (loop.factor == graph.sequenceFactor)
        return loop.size;
  return 0;
}

ExecutorSizes ExecutorSizes::make(const Graph &graph, const Job &job, const Executor &executor,
                                  bool followsLayout) {
  ExecutorSizes sizes;
  sizes.executor = executor.name;
  if (executor.tensorParallel == TensorParallel::Any)
    return sizes;
  const int64_t tokens = sequenceLength(graph);
  // A rank has two parts of the sequence, one from its beginning and one from its end
  // (get_batch_on_this_cp_rank() of megatron/core/utils.py).
  if (tokens > 0)
    sizes.list.push_back({Axis::Context, tokens % 2 == 0 ? tokens / 2 : 1,
                          "two parts on each rank of " + std::to_string(tokens) + " tokens"});
  if (!followsLayout)
    return sizes;
  if (tokens > 0 && executor.tensorParallel == TensorParallel::MegatronTokens)
    sizes.list.push_back({Axis::Tensor, tokens, std::to_string(tokens) + " tokens"});
  for (const auto &[size, text] : megatronSizes(graph, job))
    sizes.list.push_back({Axis::Tensor, size, text});
  sizes.knowsLayers = hasMegatronLayers(graph, job);
  return sizes;
}

bool ExecutorSizes::allows(const MeshShape &mesh, bool isAsked) const {
  return (mesh.tp == 1 || knowsLayers || isAsked) &&
         std::all_of(list.begin(), list.end(),
                     [&](const Size &s) { return s.size % mesh.of(s.axis) == 0; });
}

/// Returns the numbers that divide all sizes of `axis`. Example: "1, 2, 3, 4, 6 or 12".
static std::string possibleSizes(const std::vector<ExecutorSizes::Size> &list, Axis axis) {
  int64_t common = 0;
  for (const ExecutorSizes::Size &s : list)
    if (s.axis == axis)
      common = std::gcd(common, s.size);
  const std::vector<int64_t> divisors = divisorsOf(common);
  std::string text;
  for (size_t i = 0; i < divisors.size(); ++i)
    text += (i == 0 ? "" : i + 1 == divisors.size() ? " or " : ", ") + std::to_string(divisors[i]);
  return text;
}

Status ExecutorSizes::check(const Pins &pins, const MeshShape &mesh, int64_t gpus) const {
  for (const Size &s : list) {
    const std::string name = mesh::row(s.axis).name;
    const Condition *asked = askedSize(pins, s.axis);
    const bool isAlone = pins.mesh.empty() && s.axis == Axis::Tensor && pins.strategy == name;
    const int64_t size = asked ? numberOf(*asked) : isAlone ? gpus : mesh.of(s.axis);
    if (s.size % size == 0)
      continue;
    const std::string flag = asked ? flagOf(*asked)
                             : isAlone
                                 ? "--strategy " + name + " on " + std::to_string(gpus) + " devices"
                                 : "--mesh " + name + "=" + std::to_string(size);
    return Error{ErrorCode::Usage, flag + ": " + executor + " splits " + s.text + " over " + name +
                                       ", and " + std::to_string(size) +
                                       " parts are impossible; with this model it runs " + name +
                                       " of " + possibleSizes(list, s.axis)};
  }
  return Status::ok();
}

} // namespace tbc::planner

//===- PlanFacts.cpp - A plan in the terms of other frameworks -------------===//

#include "tools/export/PlanFacts.h"

#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanCheck.h"
#include "tools/export/Slurm.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace tbc::exporter {

using planner::DimSplit;
using planner::LayoutParameters;
using planner::Plan;
using planner::TensorPlacement;

const char *name(ZeroForm form) {
  switch (form) {
  case ZeroForm::Replicated:
    return "replicated parameters";
  case ZeroForm::Zero1:
    return "ZeRO-1";
  case ZeroForm::Zero2:
    return "ZeRO-2";
  case ZeroForm::ShardGradOp:
    return "SHARD_GRAD_OP";
  case ZeroForm::Zero3:
    return "ZeRO-3";
  }
  return "";
}

/// Finds the list of blocks: the numbered path with the most elements of parameters.
static void findBlocks(const Plan &plan, PlanFacts &facts) {
  std::map<std::string, std::pair<double, int64_t>> lists; // elements, and the number of items
  for (const LayoutParameters &group : plan.layout.parameters) {
    double elements = 1;
    for (int64_t size : group.shape)
      elements *= double(size);
    for (const std::string &path : group.names) {
      const planner::NumberedModule module = planner::numberedModule(path);
      if (module.number < 0)
        continue;
      auto &[sum, count] = lists[module.list];
      sum += elements;
      count = std::max(count, module.number + 1);
    }
  }
  double most = 0;
  for (const auto &[list, content] : lists)
    if (content.first > most) {
      most = content.first;
      facts.blockPath = list;
      facts.numBlocks = content.second;
    }
}

int64_t PlanFacts::blockOf(const std::string &path) const {
  const planner::NumberedModule module = planner::numberedModule(path);
  return module.list == blockPath && !blockPath.empty() ? module.number : -1;
}

std::vector<std::string> PlanFacts::paddedTablesOverTp() const {
  const std::string axis = mesh::row(planner::Axis::Tensor).name;
  std::vector<std::string> names;
  for (const LayoutParameters &group : plan->layout.parameters) {
    const bool isPadded = std::any_of(
        job().paddedVocabularies.begin(), job().paddedVocabularies.end(), [&](const auto &sizes) {
          return std::count(group.shape.begin(), group.shape.end(), sizes.second) > 0;
        });
    if (isPadded && isSplitOver(group.used, axis))
      names.insert(names.end(), group.names.begin(), group.names.end());
  }
  return names;
}

std::string PlanFacts::paddingText() const {
  std::string text;
  for (const auto &[size, padded] : job().paddedVocabularies)
    text += (text.empty() ? "the vocabulary of " : ", that of ") + std::to_string(size) +
            " is padded to " + std::to_string(padded);
  return text;
}

/// Whether `path` is the list of blocks or holds it. A chunk with all ops of a module names the
/// module alone. Example: "model" holds "model.layers".
static bool holdsBlocks(const PlanFacts &facts, const std::string &path) {
  return !facts.blockPath.empty() &&
         (path.empty() || (facts.blockPath + ".").rfind(path + ".", 0) == 0);
}

static void findChunks(const Plan &plan, PlanFacts &facts) {
  std::set<int64_t> before;
  for (size_t index = 0; index < plan.layout.chunks.size(); ++index) {
    const planner::LayoutChunk &chunk = plan.layout.chunks[index];
    ChunkBlocks result;
    result.stage = chunk.stage;
    result.begin = index < plan.stageNames.size() ? plan.stageNames[index] : chunk.firstOp;
    for (const std::string &path : chunk.modules) {
      if (int64_t block = facts.blockOf(path); block >= 0)
        result.blocks.insert(block);
      if (holdsBlocks(facts, path))
        for (int64_t block = 0; block < facts.numBlocks; ++block)
          result.blocks.insert(block);
    }
    for (int64_t block : result.blocks)
      result.beginsInsideBlock |= before.count(block) > 0;
    before.insert(result.blocks.begin(), result.blocks.end());
    facts.chunks.push_back(std::move(result));
  }
}

static bool names(const planner::AxisNames &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

static bool isSplitOver(const DimSplit &dim, const std::string &axis) {
  if (names(dim.axes, axis))
    return true;
  for (const auto &segment : dim.segments)
    for (const planner::SplitFactor &factor : segment)
      if (names(factor.axes, axis))
        return true;
  return false;
}

bool PlanFacts::shardsOver(planner::Axis axis) const {
  return names(plan->parameterDefault.zeroAxes, mesh::row(axis).name);
}

bool isSplitOver(const TensorPlacement &placement, const std::string &axis) {
  return std::any_of(placement.dims.begin(), placement.dims.end(),
                     [&](const DimSplit &dim) { return isSplitOver(dim, axis); });
}

MatrixSplit splitOverTensorAxis(const LayoutParameters &parameter) {
  for (size_t dim = 0; dim < parameter.used.dims.size(); ++dim) {
    if (!isSplitOver(parameter.used.dims[dim], mesh::row(planner::Axis::Tensor).name))
      continue;
    bool isSummed = std::find(parameter.summed.begin(), parameter.summed.end(), int64_t(dim)) !=
                    parameter.summed.end();
    return isSummed ? MatrixSplit::Row : MatrixSplit::Column;
  }
  return MatrixSplit::Whole;
}

/// Returns the numbers of the blocks that `boundary` names. Example: "h.3.mlp, h.4.ln_1" gives 3
/// and 4; "h.*" none.
static std::set<int64_t> blocksOf(const PlanFacts &facts, const planner::LayoutBoundary &boundary) {
  std::set<int64_t> blocks;
  std::istringstream paths(boundary.block);
  for (std::string path; std::getline(paths >> std::ws, path, ',');)
    if (int64_t block = facts.blockOf(path); block >= 0)
      blocks.insert(block);
  return blocks;
}

/// Returns the form of activations between blocks. A part of the model that ends inside a block,
/// such as behind its first matmuls, passes on values of that block too: these do not count.
static ResidualForm residualOf(const PlanFacts &facts) {
  const std::string tp = mesh::row(planner::Axis::Tensor).name;
  const std::vector<planner::LayoutBoundary> &boundaries = facts.plan->layout.boundaries;
  std::vector<bool> endsInside(boundaries.size());
  std::set<int64_t> after;
  for (size_t i = boundaries.size(); i-- > 0;) {
    const std::set<int64_t> blocks = blocksOf(facts, boundaries[i]);
    for (int64_t block : blocks)
      endsInside[i] = endsInside[i] || after.count(block) > 0;
    after.insert(blocks.begin(), blocks.end());
  }
  std::set<ResidualForm> found;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    if (endsInside[i])
      continue;
    for (const planner::LayoutTensor &tensor : boundaries[i].outputs) {
      if (tensor.placement.dims.size() < 2)
        continue;
      if (!isSplitOver(tensor.placement, tp) && !names(tensor.placement.partial, tp))
        found.insert(ResidualForm::Whole);
      else if (tensor.placement.dims.size() == 3 && names(tensor.placement.dims[1].axes, tp))
        found.insert(ResidualForm::Sequence);
      else
        found.insert(ResidualForm::Other);
    }
  }
  if (found.empty())
    return ResidualForm::Whole;
  return found.size() == 1 ? *found.begin() : ResidualForm::Other;
}

static ZeroForm zeroForm(const planner::ParameterDecision &decision) {
  if (decision.zeroAxes.empty())
    return ZeroForm::Replicated;
  switch (decision.zero) {
  case 1:
    return ZeroForm::Zero1;
  case 2:
    return ZeroForm::Zero2;
  case 3:
    return decision.keepGathered ? ZeroForm::ShardGradOp : ZeroForm::Zero3;
  default:
    return ZeroForm::Replicated;
  }
}

Result<PlanFacts> PlanFacts::make(const Plan &plan) {
  if (std::string why = planner::whyStale(plan); !why.empty())
    return Error{ErrorCode::Usage, why};
  if (plan.layout.isEmpty() || plan.layout.modules.empty())
    return Error{ErrorCode::Usage, "the plan has no complete key \"layout\"; tbc explain PLAN "
                                   "--derive FILE writes it"};
  PlanFacts facts;
  facts.plan = &plan;
  findBlocks(plan, facts);
  findChunks(plan, facts);
  facts.residual = residualOf(facts);
  facts.zero = zeroForm(plan.parameterDefault);
  for (const planner::ParameterOverride &other : plan.parameterOverrides)
    if (zeroForm(other.decision) != facts.zero ||
        other.decision.zeroAxes != plan.parameterDefault.zeroAxes)
      facts.otherZero.insert(facts.otherZero.end(), other.parameters.begin(),
                             other.parameters.end());
  return facts;
}

int64_t PlanFacts::chunksPerStage() const { return plan->numChunks() / plan->mesh.pp; }

bool PlanFacts::isLooped() const {
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    if (chunks[chunk].stage != int(int64_t(chunk) % plan->mesh.pp))
      return false;
  return true;
}

bool PlanFacts::isVee() const {
  int64_t stages = plan->mesh.pp;
  if (int64_t(chunks.size()) != 2 * stages || stages == 1)
    return false;
  for (int64_t chunk = 0; chunk < 2 * stages; ++chunk)
    if (chunks[size_t(chunk)].stage != int(std::min(chunk, 2 * stages - 1 - chunk)))
      return false;
  return true;
}

const ChunkBlocks *PlanFacts::cutBlock() const {
  for (const ChunkBlocks &chunk : chunks)
    if (chunk.beginsInsideBlock)
      return &chunk;
  return nullptr;
}

bool PlanFacts::isEven() const {
  return std::all_of(chunks.begin(), chunks.end(), [&](const ChunkBlocks &chunk) {
    return chunk.blocks.size() == chunks.front().blocks.size();
  });
}

std::vector<int64_t> PlanFacts::recomputedBlocks() const {
  std::vector<int64_t> result(size_t(plan->mesh.pp), 0);
  const planner::BlockShare &share = plan->recompute.share;
  for (const ChunkBlocks &chunk : chunks)
    for (int64_t block : chunk.blocks)
      if (plan->recompute.mode != planner::RecomputeMode::None &&
          (share.isAll() || block < share.blocks))
        ++result[size_t(chunk.stage)];
  return result;
}

std::set<int64_t> PlanFacts::numExperts() const {
  const std::string axis = mesh::row(planner::Axis::Expert).name;
  std::set<int64_t> numbers;
  for (const LayoutParameters &parameter : plan->layout.parameters)
    for (size_t dim = 0; dim < parameter.used.dims.size(); ++dim)
      if (isSplitOver(parameter.used.dims[dim], axis))
        numbers.insert(parameter.shape[dim]);
  return numbers;
}

bool PlanFacts::gathersTokensForExperts() const {
  const planner::AxisNames axes = {mesh::row(planner::Axis::Expert).name};
  const std::vector<planner::LayoutCollective> &all = plan->layout.collectives;
  return std::any_of(all.begin(), all.end(), [&](const planner::LayoutCollective &collective) {
    return collective.axes == axes && collective.kind == "all_gather";
  });
}

bool PlanFacts::widensGradients() const {
  constexpr double f32Bytes = 4;
  const double width = plan->cluster.executor.gradientWidth; // 0: as tbc's
  return job().precision != planner::Precision::F32 && (width == 0 || width == f32Bytes);
}

double PlanFacts::setting(const std::string &key, double otherwise) const {
  auto found = plan->job.settings.find(key);
  return found == plan->job.settings.end() ? otherwise : found->second;
}

int64_t PlanFacts::perNode() const { return devicesPerNode(*plan); }

int64_t PlanFacts::nodes() const { return nodesOf(*plan); }

} // namespace tbc::exporter

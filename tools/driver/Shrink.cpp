//===- Shrink.cpp - Shrink a step and a plan to run on this machine --------===//

#include "tools/driver/Shrink.h"

#include "ir/Resize.h"
#include "ir/Roles.h"
#include "planner/plan/PlanApply.h"
#include "runtime/schedule/Schedule.h"
#include "tools/driver/FewerLayers.h"

#include <algorithm>
#include <map>

using namespace mlir;

namespace tbc::driver {

namespace {

/// Models up to this many parameters are verified at full size if a step has at most this many
/// FLOPs: a second or two in the reference kernels.
constexpr int64_t kFullSizeParameters = int64_t(1) << 20;
constexpr double kFullSizeFlops = 2e9;
/// Steps up to this many ops keep all layers, if they are of full size.
constexpr int64_t kAllLayersOps = 500;

std::string arrow(int64_t from, int64_t to) {
  return std::to_string(from) + " -> " + std::to_string(to);
}

class Shrinker {
public:
  /// `each`: see `shrinkTo`; 0 stands for `shrink`.
  Shrinker(const TrainingStep &step, const planner::Plan &plan, const ShrinkOptions &options,
           int64_t each)
      : step(&step), original(plan), options(options), ranks(options.ranks), each(each) {
    result.plan = plan;
  }

  Result<Shrunk> run();

private:
  Status shrinkMesh();
  void shrinkStages();
  void shrinkBatch();
  Status omitLayers();
  bool isOfFullSize() const;
  Status chooseSizes();
  Status checkSizes() const;
  void describeSizes();

  /// Returns for each factor the unit that its size must be a multiple of.
  Result<std::map<reshard::FactorId, int64_t>> unitsOfFactors() const;

  const TrainingStep *step; // the original, or `fewer`
  const planner::Plan &original;
  const ShrinkOptions &options;
  int64_t ranks, each;
  std::unique_ptr<TrainingStep> fewer; // with fewer layers; null: all
  bool isFullSize = false;             // no size shrinks
  FactorSizes oldSizes, sizes;
  Shrunk result;
};

Status Shrinker::shrinkMesh() {
  planner::MeshShape &mesh = result.plan.mesh;
  if (mesh.numRanks() <= ranks)
    return Status::ok();
  for (const std::string &name : planner::axisNames()) {
    int64_t *axis = mesh.find(name);
    *axis = std::min<int64_t>(*axis, 2);
  }
  if (mesh.numRanks() > ranks)
    return Error{ErrorCode::Usage, "the plan's mesh (" + planner::toString(original.mesh) +
                                       ") needs at least " + std::to_string(mesh.numRanks()) +
                                       " ranks, two per axis; allow them with --ranks"};
  if (mesh.pp > 1)
    for (int64_t pp = original.mesh.pp; pp > mesh.pp; --pp)
      if (original.mesh.pp % pp == 0 && mesh.numRanks() / mesh.pp * pp <= ranks) {
        mesh.pp = pp;
        break;
      }
  shrinkStages();
  result.notes.push_back("mesh " + planner::toString(original.mesh) + " -> " +
                         planner::toString(mesh) +
                         (mesh.pp < original.mesh.pp ? ", stages merged" : ""));
  // Fewer ranks would lie on other nodes, and merged stages on several device types.
  if (planner::Cluster &cluster = result.plan.cluster; cluster.isMixed()) {
    cluster = planner::Cluster(cluster.groups[0]);
    cluster.numNodes = 0;
    result.notes.push_back("cluster " + original.cluster.name + " -> " + cluster.name);
  }
  return Status::ok();
}

/// Keeps the number of chunks per stage of looped and V-shaped pipelines; each new chunk joins
/// several old ones. Other placements keep all chunks and map them to the merged stages.
void Shrinker::shrinkStages() {
  int64_t pp = result.plan.mesh.pp, chunks = original.numChunks();
  if (int64_t(original.stages.size()) != chunks || pp == original.mesh.pp)
    return;
  std::vector<int> &chunkStage = result.plan.chunkStage;
  int64_t each = chunks / original.mesh.pp;
  int64_t count = pp * each; // new chunks
  auto isLike = [&](auto make) {
    return original.chunkStage == make(int(original.mesh.pp), int(each)).chunkStage;
  };
  if (pp == 1) {
    chunkStage.clear();
    count = 1;
    result.plan.schedule.reset();
  } else if (isLike(schedule::Pipeline::loop)) {
    chunkStage = schedule::Pipeline::loop(int(pp), int(each)).chunkStage;
  } else if (isLike(schedule::Pipeline::vee)) {
    chunkStage = schedule::Pipeline::vee(int(pp), int(each)).chunkStage;
  } else if (!chunkStage.empty()) {
    count = chunks;
    for (int &stage : chunkStage)
      stage = int(stage * pp / original.mesh.pp);
  }
  result.plan.stages.clear();
  for (int64_t k = 0; k < count; ++k)
    result.plan.stages.push_back(original.stages[k * chunks / count]);
}

void Shrinker::shrinkBatch() {
  planner::Plan &plan = result.plan;
  if (sizes.empty() && !fewer && plan.mesh == original.mesh)
    return;
  int64_t enough = schedule::steadyMicroBatches(
      plan.schedule.value_or(schedule::kindWithoutPipeline), plan.mesh.pp);
  plan.accumulation = std::min(plan.accumulation, enough);
  if (!sizes.empty())
    plan.microBatch = std::min<int64_t>(plan.microBatch, each == 1 ? 1 : 2);
  plan.job.globalBatch = plan.microBatch * plan.accumulation * plan.mesh.dataRanks();
  if (plan.accumulation != original.accumulation)
    result.notes.push_back("micro-batches " + arrow(original.accumulation, plan.accumulation));
  if (plan.microBatch != original.microBatch)
    result.notes.push_back("samples of a micro-batch " +
                           arrow(original.microBatch, plan.microBatch));
}

Result<std::map<reshard::FactorId, int64_t>> Shrinker::unitsOfFactors() const {
  auto planned = planner::applyPlan(step->step.graph, result.plan);
  if (!planned)
    return planned.error();
  reshard::Mesh mesh = result.plan.mesh.mesh();
  std::map<reshard::FactorId, int64_t> units;
  for (size_t op = 0; op < planned->graph.ops.size(); ++op)
    for (const auto &[loop, axes] : planned->assignment.strategies[op].loopAxes) {
      int64_t unit = 1;
      for (const reshard::AxisRef &axis : axes)
        if (int index = mesh.axisIndex(planned->assignment.mesh.axes[axis.axis].name); index >= 0)
          unit *= mesh.axes[index].size;
      reshard::FactorId factor = planned->graph.ops[op].loops[loop].factor;
      if (original.zigzag && factor == planned->graph.sequenceFactor)
        unit *= 2; // zigzag: two parts per rank
      int64_t &known = units[factor];
      known = std::max(known, unit);
    }
  return units;
}

bool Shrinker::isOfFullSize() const {
  int64_t parameters = 0;
  for (const frontend::ParameterSource &source : step->model.parameters)
    parameters += source.isState ? 0 : kernels::numElements(source.shape);
  double flops = 0; // per step; the graph has another micro-batch size
  for (const reshard::GraphOp &op : step->step.graph.ops)
    flops += op.flops * double(original.job.globalBatch) / double(step->model.batch);
  return each == 0 && parameters <= kFullSizeParameters && flops <= kFullSizeFlops;
}

Status Shrinker::omitLayers() {
  if (options.allLayers || (isFullSize && int64_t(step->step.graph.ops.size()) <= kAllLayersOps))
    return Status::ok();
  auto shortened = withFewerLayers(*step, result.plan);
  if (!shortened)
    return shortened.error();
  if (!shortened->step)
    return Status::ok();
  fewer = std::move(shortened->step);
  step = fewer.get();
  result.plan = std::move(shortened->plan);
  result.notes.insert(result.notes.end(), shortened->notes.begin(), shortened->notes.end());
  return Status::ok();
}

Status Shrinker::chooseSizes() {
  if (isFullSize)
    return Status::ok();
  auto units = unitsOfFactors();
  if (!units)
    return units.error();
  oldSizes = resizableFactors(step->train, *step->analysis);
  int64_t number = 0;
  for (auto [factor, size] : oldSizes) {
    int64_t unit = 1;
    if (auto it = units->find(factor); it != units->end())
      unit = std::max<int64_t>(1, it->second);
    // Sizes differ, so that mixed-up dims do not fit by chance.
    int64_t wanted = size % 2 ? 5 + 2 * (number % 2) : 4 + 2 * (number % 3);
    ++number;
    wanted = each > 0 ? each * unit : std::max(2 * unit, (wanted + unit - 1) / unit * unit);
    if (wanted < size)
      sizes[factor] = wanted;
  }
  return Status::ok();
}

/// Checks that several copies of the shrunk parameters fit on this machine.
Status Shrinker::checkSizes() const {
  constexpr int64_t most = int64_t(1) << 26; // elements: 0.5 GiB of residues, about ten times
  int64_t total = 0, largest = 0;
  std::string name, shape;
  func::FuncOp train = step->train;
  for (BlockArgument arg : train.getArguments()) {
    if (argumentRole(train, arg.getArgNumber()) != TensorRole::Parameter)
      continue;
    int64_t elements = 1;
    std::string dims;
    for (const reshard::DimLayout &dim : step->analysis->tensorLayout(arg).dims) {
      elements *= resized(dim, sizes);
      dims += (dims.empty() ? "" : " x ") + std::to_string(resized(dim, sizes));
    }
    total += elements;
    if (elements > largest) {
      largest = elements;
      name = train.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr).str();
      shape = dims;
    }
  }
  if (total <= most)
    return Status::ok();
  return Error{ErrorCode::Usage,
               "the model cannot be made small enough to be verified here: sizes of " +
                   std::to_string(total) +
                   " elements of its parameters are bound to others, most of them "
                   "in \"" +
                   name + "\" (" + shape +
                   "); --full verifies it as it is, with memory for many times that"};
}

/// Names one example parameter dim for every pair of old and new size.
void Shrinker::describeSizes() {
  std::map<std::pair<int64_t, int64_t>, std::string> examples;
  func::FuncOp train = step->train;
  for (BlockArgument arg : train.getArguments()) {
    auto name = train.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
    for (auto [dim, layout] : llvm::enumerate(step->analysis->tensorLayout(arg).dims))
      for (const reshard::Segment &segment : layout.segments)
        for (const reshard::Factor &factor : segment.factors)
          if (auto it = sizes.find(factor.id); it != sizes.end() && name)
            examples.try_emplace({factor.size, it->second},
                                 "dim " + std::to_string(dim) + " of " + name.str());
  }
  std::map<std::pair<int64_t, int64_t>, int> counts;
  for (auto [factor, size] : sizes)
    ++counts[{oldSizes.at(factor), size}];
  for (const auto &[change, count] : counts) {
    std::string text = "factor " + arrow(change.first, change.second);
    if (auto it = examples.find(change); it != examples.end())
      text += " (" + it->second + (count > 1 ? " and others)" : ")");
    result.notes.push_back(text);
  }
}

Result<Shrunk> Shrinker::run() {
  if (original.job.stepHash != step->hash)
    return Error{ErrorCode::Usage, "the plan was made for another model or other bindings; plan "
                                   "again with `tbc plan`"};
  if (Status status = shrinkMesh(); !status)
    return status.error();
  isFullSize = isOfFullSize();
  if (Status status = omitLayers(); !status)
    return status.error();
  if (Status status = chooseSizes(); !status)
    return status.error();
  if (Status status = checkSizes(); !status)
    return status.error();
  shrinkBatch();
  describeSizes();
  auto shrunk = withSizes(*step, sizes);
  if (!shrunk)
    return shrunk.error();
  result.step = std::move(*shrunk);
  result.plan.job.stepHash = result.step->hash;
  return std::move(result);
}

} // namespace

Result<Shrunk> shrink(const TrainingStep &step, const planner::Plan &plan,
                      const ShrinkOptions &options) {
  return Shrinker(step, plan, options, /*each=*/0).run();
}

Result<Shrunk> shrinkTo(const TrainingStep &step, const planner::Plan &plan,
                        const ShrinkOptions &options, int64_t each) {
  return Shrinker(step, plan, options, each).run();
}

} // namespace tbc::driver

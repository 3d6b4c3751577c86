//===- StepGraph.cpp - From @train to the planner's graph ------------------===//

#include "ir/StepGraph.h"

#include "ir/ElementTypes.h"
#include "ir/LostBatch.h"
#include "ir/MatrixUpdate.h"
#include "ir/Reshard.h"
#include "ir/Roles.h"
#include "planner/reshard/Recompute.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tbc {

using reshard::GraphOp;
using reshard::GraphValue;
using reshard::Loop;
using reshard::Phase;
using reshard::ValueRole;

namespace {

class Extractor {
public:
  /// Without `analysis`, no layouts and no loops.
  Extractor(func::FuncOp train, const FactorAnalysis *analysis)
      : train(train), analysis(analysis) {}

  FailureOr<StepGraph> run();

private:
  int addValue(Value value, std::string name, ValueRole role);
  int indexOf(Value value) const { return step.valueIndex.lookup(throughReshards(value)); }
  LogicalResult addOp(Operation *op);
  LogicalResult addClone(Operation *op);
  LogicalResult insertClones();
  void addLoops(Operation *op, GraphOp &graphOp, std::vector<std::vector<unsigned>> &ruleLoops);
  bool cutsEverySegment(Operation *op, const Loop &loop) const;
  void addResults();
  void linkForward();
  int loopOf(int op, unsigned ruleLoop) const;
  reshard::Routing routingOf(int op) const;
  int dealtDim(const std::vector<int> &dealt, int value) const;
  void findExperts();
  void splitSources(int value, int dim);

  func::FuncOp train;
  const FactorAnalysis *analysis;
  StepGraph step; // without clones until insertClones
  std::vector<reshard::ClonedOp> order;
  std::vector<Operation *> orderedOps; // as `order`
  llvm::StringMap<int> forwardById;
};

} // namespace

/// Returns the planner's role of an argument of @train.
static ValueRole valueRole(TensorRole role) {
  switch (role) {
  case TensorRole::Parameter:
    return ValueRole::Parameter;
  case TensorRole::State:
    return ValueRole::State;
  case TensorRole::OptimizerState:
    return ValueRole::OptimizerState;
  case TensorRole::Input:
  case TensorRole::Label:
  case TensorRole::Sample:
  case TensorRole::Step:
  case TensorRole::Gradient:
  case TensorRole::Loss:
  case TensorRole::Count:
  case TensorRole::LearningRate:
  case TensorRole::Residual:
  case TensorRole::Receive:
  case TensorRole::Send:
  case TensorRole::GradientAccumulator:
  case TensorRole::LossAccumulator:
  case TensorRole::TotalGradient:
  case TensorRole::ReducedGradient:
    return ValueRole::Input;
  }
  llvm_unreachable("no role");
}

int Extractor::addValue(Value value, std::string name, ValueRole role) {
  GraphValue graphValue;
  graphValue.name = std::move(name);
  if (analysis)
    graphValue.layout = analysis->tensorLayout(value);
  graphValue.role = role;
  graphValue.dtype = *dtypeOf(tensorType(value).getElementType()); // tensors of tbc have one
  int index = step.graph.values.size();
  step.graph.values.push_back(std::move(graphValue));
  step.values.push_back(value);
  step.valueIndex[value] = index;
  return index;
}

/// Returns true if the loop's factor is once in each segment of every dim it runs through, so that
/// sharding it cuts every segment.
bool Extractor::cutsEverySegment(Operation *op, const Loop &loop) const {
  auto isCut = [&](Value value, int dim) {
    return llvm::all_of(analysis->dimLayout(value, dim).segments, [&](const reshard::Segment &s) {
      return llvm::count_if(s.factors,
                            [&](const reshard::Factor &f) { return f.id == loop.factor; }) == 1;
    });
  };
  return llvm::all_of(loop.operandDims,
                      [&](auto use) { return isCut(op->getOperand(use.tensor), use.dim); }) &&
         llvm::all_of(loop.resultDims,
                      [&](auto use) { return isCut(op->getResult(use.tensor), use.dim); });
}

static bool shareADim(const std::vector<reshard::TensorDim> &a,
                      const std::vector<reshard::TensorDim> &b) {
  return llvm::any_of(a, [&](const reshard::TensorDim &x) {
    return llvm::any_of(
        b, [&](const reshard::TensorDim &y) { return x.tensor == y.tensor && x.dim == y.dim; });
  });
}

static void addDims(std::vector<reshard::TensorDim> &to,
                    const std::vector<reshard::TensorDim> &from) {
  for (const reshard::TensorDim &use : from)
    if (!shareADim(to, {use}))
      to.push_back(use);
}

/// Returns true if the op combines elements along a loop of this kind. An op does so along one set
/// of loops: those that it sums away, or else its fixed ones. Example: a norm combines along its
/// fixed last dim; the gradient of its scale sums over rows, and each column is on its own.
static bool isReduced(LoopKind kind, const FactorRule &rule) {
  if (kind != LoopKind::Fixed)
    return kind != LoopKind::Parallel;
  return llvm::none_of(rule.loops, [](const FactorRule::Loop &loop) {
    return loop.kind == LoopKind::Reduction || loop.kind == LoopKind::Max;
  });
}

/// Adds one loop per factor of each of the rule's loops. Segments, loops of one factor in one dim,
/// become one loop, since a shard of the dim takes a shard of each segment.
void Extractor::addLoops(Operation *op, GraphOp &graphOp,
                         std::vector<std::vector<unsigned>> &ruleLoops) {
  FactorRule rule = cast<ShardableOpInterface>(op).getFactorRule();
  auto usesOf = [&](unsigned loop, ArrayRef<SmallVector<FactorRule::Dim, 4>> tensors) {
    std::vector<reshard::TensorDim> uses;
    for (auto [t, dims] : llvm::enumerate(tensors))
      for (auto [d, dim] : llvm::enumerate(dims))
        if (llvm::any_of(dim,
                         [&](const FactorRule::Product &p) { return llvm::is_contained(p, loop); }))
          uses.push_back({int(t), int(d)});
    return uses;
  };
  for (auto [i, ruleLoop] : llvm::enumerate(rule.loops)) {
    auto operandDims = usesOf(i, rule.operands), resultDims = usesOf(i, rule.results);
    if (operandDims.empty() && resultDims.empty())
      continue;
    for (const reshard::Segment &segment : analysis->loopLayout(op, i).segments) {
      for (const reshard::Factor &factor : segment.factors) {
        auto same = llvm::find_if(graphOp.loops, [&](const Loop &loop) {
          return loop.factor == factor.id && (shareADim(loop.operandDims, operandDims) ||
                                              shareADim(loop.resultDims, resultDims));
        });
        if (same == graphOp.loops.end()) {
          Loop loop;
          loop.factor = factor.id;
          loop.size = factor.size;
          loop.kind = ruleLoop.kind;
          graphOp.loops.push_back(std::move(loop));
          ruleLoops.emplace_back();
          same = std::prev(graphOp.loops.end());
        }
        same->isReduced |= isReduced(ruleLoop.kind, rule);
        if (same->kind != ruleLoop.kind)
          same->kind = reshard::LoopKind::Fixed;
        addDims(same->operandDims, operandDims);
        addDims(same->resultDims, resultDims);
        auto &parts = ruleLoops[same - graphOp.loops.begin()];
        if (!llvm::is_contained(parts, i))
          parts.push_back(i);
      }
    }
  }
  for (Loop &loop : graphOp.loops)
    if (!analysis->isShardable(loop.factor) || !cutsEverySegment(op, loop))
      loop.kind = reshard::LoopKind::Fixed;
}

LogicalResult Extractor::addOp(Operation *op) {
  if (!isa<ShardableOpInterface>(op) || !isa<CostOpInterface>(op))
    return op->emitError("has no factor rule and cost; it cannot be planned");
  auto cost = cast<CostOpInterface>(op);
  GraphOp graphOp;
  auto id = op->getAttrOfType<StringAttr>(kIdAttr);
  graphOp.id = id ? id.str() : ("op" + std::to_string(step.graph.ops.size()));
  graphOp.kind = op->getName().stripDialect().str();
  graphOp.phase = phaseOf(op);
  if (auto chunk = op->getAttrOfType<IntegerAttr>(kChunkAttr))
    graphOp.chunk = chunk.getInt();
  auto shardable = cast<ShardableOpInterface>(op);
  graphOp.additive = shardable.isAdditive();
  graphOp.flops = cost.getFlops();
  graphOp.kernelClass = cost.getKernelClass();
  graphOp.isLoopNest = cost.isLoopNest();
  graphOp.function = cost.getElementFunction();
  graphOp.logitsOperand = cost.getLogitsOperand();
  graphOp.workspace = cost.getWorkspace();
  graphOp.own = cost.getOwnKernel();
  graphOp.columns = cost.getColumnUse();
  graphOp.generator = llvm::all_of(op->getOperands(), [&](Value operand) {
    int producer = step.graph.values[indexOf(operand)].producer;
    return producer >= 0 && step.graph.ops[producer].generator;
  });
  int index = step.graph.ops.size();
  for (Value operand : op->getOperands()) {
    int value = indexOf(operand);
    graphOp.operands.push_back(value);
    std::vector<int> &users = step.graph.values[value].users;
    if (users.empty() || users.back() != index)
      users.push_back(index);
  }
  for (OpResult result : op->getResults()) {
    std::string suffix =
        op->getNumResults() > 1 ? "#" + std::to_string(result.getResultNumber()) : "";
    int value = addValue(result, graphOp.id + suffix, ValueRole::Activation);
    step.graph.values[value].producer = index;
    step.graph.values[value].producerResult = result.getResultNumber();
    graphOp.results.push_back(value);
  }
  step.ruleLoops.emplace_back();
  if (analysis)
    addLoops(op, graphOp, step.ruleLoops.back());
  if (graphOp.phase == Phase::Forward)
    forwardById[graphOp.id] = index;
  order.push_back({index, false});
  orderedOps.push_back(op);
  step.graph.ops.push_back(std::move(graphOp));
  step.ops.push_back(op);
  step.opIndex[op] = index;
  return success();
}

/// Adds a clone. Until `insertClones`, readers of its results read those of the original.
LogicalResult Extractor::addClone(Operation *op) {
  auto forward = op->getAttrOfType<StringAttr>(kForwardIdAttr);
  auto original = forward ? forwardById.find(forward.getValue()) : forwardById.end();
  if (original == forwardById.end())
    return op->emitOpError("is a clone of no forward op");
  const GraphOp &source = step.graph.ops[original->second];
  if (source.results.size() != op->getNumResults())
    return op->emitOpError() << "is no clone of \"" << source.id << "\": it has other results";
  for (auto [value, result] : llvm::zip_equal(source.results, op->getResults()))
    step.valueIndex[result] = value;
  order.push_back({original->second, true});
  orderedOps.push_back(op);
  return success();
}

/// Inserts the clones at their positions in the IR.
LogicalResult Extractor::insertClones() {
  if (order.size() == step.graph.ops.size())
    return success();
  std::vector<int> sources;
  reshard::Graph graph = reshard::withClones(step.graph, order, nullptr, &sources);
  StepGraph result;
  result.values = step.values;
  result.values.resize(graph.values.size());
  for (BlockArgument arg : train.getArguments())
    result.valueIndex[arg] = step.valueIndex.lookup(arg);
  for (auto [i, op] : llvm::enumerate(orderedOps)) {
    for (auto [value, operand] : llvm::zip_equal(graph.ops[i].operands, op->getOperands()))
      if (result.valueIndex.lookup(throughReshards(operand)) != value)
        return op->emitOpError() << "reads \"" << graph.values[indexOf(operand)].name
                                 << "\", which is recomputed before it";
    for (auto [value, made] : llvm::zip_equal(graph.ops[i].results, op->getResults())) {
      result.values[value] = made;
      result.valueIndex[made] = value;
    }
    if (order[i].isClone)
      graph.ops[i].phase = phaseOf(op);
    result.opIndex[op] = i;
    result.ops.push_back(op);
    result.ruleLoops.push_back(step.ruleLoops[sources[i]]);
  }
  result.graph = std::move(graph);
  step = std::move(result);
  return success();
}

/// Parameters with their gradients, new states and the loss, from the attributes of the results.
void Extractor::addResults() {
  llvm::StringMap<int> gradients, states;
  Operation *terminator = train.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    std::optional<TensorRole> role = resultRole(train, i);
    auto name = train.getResultAttrOfType<StringAttr>(i, kNameAttr);
    int index = indexOf(value);
    if (role == TensorRole::Loss) {
      step.graph.loss = index;
      step.graph.values[index].role = ValueRole::Loss;
    } else if (role == TensorRole::Count) {
      step.graph.count = index;
    } else if (name && role == TensorRole::Gradient) {
      gradients[name.getValue()] = index;
    } else if (name && role == TensorRole::State) {
      states[name.getValue()] = index;
    }
  }
  for (int index = 0, e = train.getNumArguments(); index < e; ++index) {
    GraphValue &value = step.graph.values[index];
    if (value.role == ValueRole::Parameter) {
      auto it = gradients.find(value.name);
      step.graph.parameters.push_back(
          {index, it == gradients.end() ? -1 : it->second, -1, nullptr});
    } else if (value.role == ValueRole::State) {
      if (auto it = states.find(value.name); it != states.end())
        step.graph.stateUpdates.push_back({index, it->second});
    }
  }
}

/// Resolves the names of forward ops and values in backward ops.
void Extractor::linkForward() {
  llvm::StringMap<int> byId;
  for (auto [i, op] : llvm::enumerate(step.graph.ops))
    if (op.phase == Phase::Forward)
      byId[op.id] = i;
  for (auto [i, op] : llvm::enumerate(step.graph.ops)) {
    if (op.phase == Phase::Forward) {
      op.forwardOp = i;
      continue;
    }
    if (auto forward = step.ops[i]->getAttrOfType<StringAttr>(kForwardIdAttr))
      if (auto it = byId.find(forward.getValue()); it != byId.end())
        op.forwardOp = it->second;
    auto of = step.ops[i]->getAttrOfType<ArrayAttr>(kCotangentOfAttr);
    if (!of)
      continue;
    for (auto [r, attr] : llvm::enumerate(of)) {
      auto ref = dyn_cast<ArrayAttr>(attr);
      if (!ref || ref.size() != 2)
        continue;
      auto it = byId.find(cast<StringAttr>(ref[0]).getValue());
      if (it != byId.end())
        step.graph.values[op.results[r]].cotangentOf =
            step.graph.ops[it->second].results[cast<IntegerAttr>(ref[1]).getInt()];
    }
  }
}

//===- experts ----------------------------------------------------------===//

/// Returns the op's loop that is rule loop `ruleLoop` alone; -1 if there is no such loop.
int Extractor::loopOf(int op, unsigned ruleLoop) const {
  int found = -1;
  for (auto [i, loops] : llvm::enumerate(step.ruleLoops[op])) {
    if (!llvm::is_contained(loops, ruleLoop))
      continue;
    if (found >= 0 || loops.size() > 1)
      return -1;
    found = i;
  }
  return found;
}

/// Returns the number of the only loop through dim `dim` of tensor `tensor`; -1 if there are
/// others.
static int loopThrough(const GraphOp &op, std::vector<reshard::TensorDim> Loop::*dims, int tensor,
                       int dim) {
  int found = -1;
  for (auto [i, loop] : llvm::enumerate(op.loops))
    for (const reshard::TensorDim &use : loop.*dims) {
      if (use.tensor != tensor || use.dim != dim || loop.size == 1)
        continue;
      if (found >= 0)
        return -1;
      found = i;
    }
  return found;
}

/// Returns the dim over experts of `value`, or of its forward value; -1 if there is no such dim.
int Extractor::dealtDim(const std::vector<int> &dealt, int value) const {
  int of = step.graph.values[value].cotangentOf;
  return dealt[value] >= 0 || of < 0 ? dealt[value] : dealt[of];
}

/// Returns how an op routes tokens to experts; without copies if it does not.
reshard::Routing Extractor::routingOf(int op) const {
  if (step.graph.ops[op].kernelClass != KernelClass::GroupedMatmul)
    return {};
  const FactorRule rule = cast<ShardableOpInterface>(step.ops[op]).getFactorRule();
  if (!rule.routing)
    return {};
  reshard::Routing routing;
  routing.experts = loopOf(op, rule.routing->experts);
  routing.innerLoop = loopOf(op, rule.routing->innerLoop);
  if (routing.experts < 0 || routing.innerLoop < 0)
    return {};
  routing.copies = rule.routing->copies;
  routing.inner = rule.routing->inner;
  return routing;
}

/// Finds the ops of experts: the ops with the interface, and those between an op that dispatches
/// tokens and one that combines them. In the backward these are the sums of cotangents of such
/// values; its other ops follow their forward op.
void Extractor::findExperts() {
  std::vector<int> dealt(step.graph.values.size(), -1); // the dim over experts
  auto deal = [&](const GraphOp &op, int loop) {
    if (loop >= 0)
      for (const reshard::TensorDim &use : op.loops[loop].resultDims)
        dealt[op.results[use.tensor]] = use.dim;
  };
  for (auto [index, op] : llvm::enumerate(step.graph.ops)) {
    op.routing = routingOf(index);
    if (auto expert = dyn_cast<ExpertOpInterface>(step.ops[index])) {
      if (op.phase != Phase::Forward || expert.getExpertRole() == ExpertRole::Collects)
        continue;
      int loop = loopOf(index, expert.getExpertLoop());
      if (expert.getExpertRole() == ExpertRole::Deals)
        deal(op, loop);
      else
        op.expertLoop = loop;
    } else if (op.phase == Phase::Forward || op.additive) {
      for (auto [k, operand] : llvm::enumerate(op.operands))
        if (int dim = dealtDim(dealt, operand); dim >= 0 && op.expertLoop < 0)
          op.expertLoop = loopThrough(op, &Loop::operandDims, k, dim);
      deal(op, op.expertLoop);
    }
  }
  for (const GraphOp &op : step.graph.ops)
    if (op.expertLoop >= 0 && op.phase == Phase::Forward)
      for (const reshard::TensorDim &use : op.loops[op.expertLoop].operandDims)
        splitSources(op.operands[use.tensor], use.dim);
}

/// Splits values computed from parameters alone by experts, if they are wanted that way.
void Extractor::splitSources(int value, int dim) {
  const GraphValue &source = step.graph.values[value];
  if (source.producer < 0)
    return;
  GraphOp &op = step.graph.ops[source.producer];
  bool hasBatch = llvm::any_of(
      op.loops, [&](const Loop &loop) { return loop.factor == step.graph.batchFactor; });
  if (op.generator || op.expertLoop >= 0 || hasBatch)
    return;
  op.expertLoop = loopThrough(op, &Loop::resultDims, source.producerResult, dim);
  if (op.expertLoop < 0)
    return;
  for (const reshard::TensorDim &use : op.loops[op.expertLoop].operandDims)
    splitSources(op.operands[use.tensor], use.dim);
}

FailureOr<StepGraph> Extractor::run() {
  for (BlockArgument arg : train.getArguments()) {
    auto name = train.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
    addValue(arg, name ? name.str() : "arg" + std::to_string(arg.getArgNumber()),
             valueRole(argumentRole(train, arg.getArgNumber()).value_or(TensorRole::Input)));
  }
  for (Operation &op : train.getBody().front().without_terminator())
    if (!isa<ReshardOp>(op) && failed(op.hasAttr(kRecomputedAttr) ? addClone(&op) : addOp(&op)))
      return failure();
  addResults();
  linkForward();
  if (!analysis) {
    if (failed(insertClones()))
      return failure();
    return std::move(step);
  }
  if (!analysis->batchFactor())
    return emitLostBatch(train);
  step.graph.batchFactor = *analysis->batchFactor();
  step.graph.sequenceFactor = analysis->sequenceFactor().value_or(-1);
  findExperts();
  if (failed(insertClones()))
    return failure();
  return std::move(step);
}

/// Adds to each trained parameter what @update keeps of it, and does on whole matrices. Updates of
/// parameters with one type are equal, and shared.
static void addUpdates(reshard::Graph &graph, func::FuncOp update) {
  llvm::StringMap<int> moments;
  for (BlockArgument arg : update.getArguments()) {
    auto of = update.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kParameterAttr);
    if (of && !update.getArgAttr(arg.getArgNumber(), kMasterAttr) &&
        !update.getArgAttr(arg.getArgNumber(), kWholeAttr))
      ++moments[of.getValue()];
  }
  llvm::DenseMap<Type, std::shared_ptr<const reshard::MatrixUpdate>> byType;
  llvm::StringMap<std::shared_ptr<const reshard::MatrixUpdate>> byName;
  for (GatherMatricesOp gather : update.getOps<GatherMatricesOp>()) {
    std::shared_ptr<const reshard::MatrixUpdate> &known = byType[gather.getType()];
    if (!known)
      known = std::make_shared<const reshard::MatrixUpdate>(extractMatrixUpdate(gather));
    byName[parameterOf(gather)] = known;
  }
  for (reshard::GraphParameter &parameter : graph.parameters) {
    if (parameter.gradient < 0)
      continue;
    const std::string &name = graph.values[parameter.value].name;
    parameter.moments = moments.lookup(name);
    parameter.matrices = byName.lookup(name);
  }
}

FailureOr<StepGraph> extractStepGraph(func::FuncOp train, const FactorAnalysis &analysis,
                                      func::FuncOp update) {
  FailureOr<StepGraph> step = Extractor(train, &analysis).run();
  if (failed(step) || !update)
    return step;
  for (StepTotalOp total : update.getOps<StepTotalOp>())
    for (Value part : total.getParts())
      step->graph.stepTotalBytes += tensorType(part).getElementTypeBitWidth() / 8;
  for (BlockArgument arg : update.getArguments())
    if (argumentRole(update, arg.getArgNumber()) == TensorRole::OptimizerState &&
        !update.getArgAttr(arg.getArgNumber(), kParameterAttr))
      step->graph.stepStateBytes += tensorType(arg).getElementTypeBitWidth() / 8;
  addUpdates(step->graph, update);
  return step;
}

FailureOr<StepGraph> extractStructure(func::FuncOp train) {
  return Extractor(train, nullptr).run();
}

} // namespace tbc

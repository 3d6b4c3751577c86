//===- DeriveShardings.cpp - The sharding of every value -------------------===//

#include "passes/plan/DeriveShardings.h"

#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_DERIVESHARDINGSPASS
#include "passes/Passes.h.inc"

FailureOr<DerivedStep> deriveStep(ModuleOp module) {
  FailureOr<PlannedStep> planned = readPlannedStep(module);
  if (failed(planned))
    return failure();
  DerivedStep result;
  result.planned = std::move(*planned);
  result.derivation = reshard::derive(result.planned.graph, result.planned.assignment);
  result.overlap =
      reshard::planOverlap(result.planned.graph, result.derivation, result.planned.overlap);
  return std::move(result);
}

DerivedStepAnalysis::DerivedStepAnalysis(Operation *module)
    : step(deriveStep(cast<ModuleOp>(module))) {}

namespace {

/// Visits every function argument and op with shardings: the attribute's name, its values, and
/// their shardings. The shardings are empty if the attribute would repeat another one.
class ShardingWalk {
public:
  using Values = std::vector<int>;
  using Shardings = std::vector<reshard::Sharding>;
  explicit ShardingWalk(DerivedStep &step)
      : step(step), graph(step.planned.graph), derivation(step.derivation) {}

  template <typename OnArgument, typename OnOp> void visit(OnArgument onArgument, OnOp onOp) {
    for (unsigned i = 0; i < step.planned.train.getNumArguments(); ++i)
      if (graph.values[i].role != reshard::ValueRole::Parameter)
        onArgument(i, kShardingAttr, derivation.home[i]);
    for (auto [p, parameter] : llvm::enumerate(graph.parameters)) {
      unsigned argument = parameter.value;
      onArgument(argument, kShardingAttr, derivation.stored[p]);
      onArgument(argument, kUsedAttr, derivation.home[argument]);
      if (parameter.gradient < 0)
        continue;
      onArgument(argument, kGradientAttr, derivation.gradient[p]);
      onArgument(argument, kStateShardingAttr, derivation.state[p]);
    }
    for (auto [i, op] : llvm::enumerate(graph.ops)) {
      Shardings homes = of(derivation.home, op.results), raw = of(derivation.raw, op.results);
      onOp(i, kShardingAttr, op.results, homes);
      onOp(i, kProducedAttr, op.results, raw == homes ? Shardings() : raw);
      Shardings wanted;
      for (const reshard::Derivation::Operand &operand : derivation.operands[i])
        wanted.push_back(operand.sharding);
      onOp(i, kWantedAttr, op.operands,
           wanted == of(derivation.home, op.operands) ? Shardings() : wanted);
    }
  }

private:
  static Shardings of(const Shardings &all, const Values &values) {
    Shardings result;
    for (int value : values)
      result.push_back(all[value]);
    return result;
  }

  DerivedStep &step;
  const reshard::Graph &graph;
  const reshard::Derivation &derivation;
};

} // namespace

static int64_t rankOf(const DerivedStep &step, int value) {
  return int64_t(step.planned.graph.values[value].layout.dims.size());
}

void writeShardings(DerivedStep &step) {
  PlannedStep &planned = step.planned;
  MLIRContext *context = planned.train.getContext();
  const reshard::Mesh &mesh = planned.assignment.mesh;
  auto onArgument = [&](unsigned i, StringRef name, const reshard::Sharding &sharding) {
    planned.train.setArgAttr(i, name, toAttribute(context, mesh, sharding, rankOf(step, int(i))));
  };
  auto onOp = [&](size_t i, StringRef name, const std::vector<int> &values,
                  const std::vector<reshard::Sharding> &shardings) {
    Operation *op = planned.step.ops[i];
    op->removeAttr(name);
    SmallVector<Attribute> list;
    for (auto [k, sharding] : llvm::enumerate(shardings))
      list.push_back(toAttribute(context, mesh, sharding, rankOf(step, values[k])));
    if (!list.empty())
      op->setAttr(name, ArrayAttr::get(context, list));
  };
  ShardingWalk(step).visit(onArgument, onOp);
}

/// Checks that `found` is possible for graph value `value` and equal to `derived`.
static LogicalResult checkSharding(DerivedStep &step, Location loc, StringRef name, int value,
                                   Attribute found, const reshard::Sharding &derived) {
  const PlannedStep &planned = step.planned;
  const reshard::Mesh &mesh = planned.assignment.mesh;
  const reshard::GraphValue &graphValue = planned.graph.values[value];
  auto attr = dyn_cast<ShardingAttr>(found);
  if (!attr)
    return emitError(loc) << name << " of \"" << graphValue.name << "\" is " << found
                          << ", no #tbc.sharding";
  if (int64_t(attr.getDims().size()) != rankOf(step, value))
    return emitError(loc) << name << " of \"" << graphValue.name << "\" has "
                          << attr.getDims().size() << " dims; the tensor has "
                          << rankOf(step, value);
  FailureOr<reshard::Sharding> sharding = toSharding(loc, mesh, attr);
  if (failed(sharding))
    return failure();
  if (std::string why = reshard::whyInvalid(mesh, graphValue.layout, *sharding); !why.empty())
    return emitError(loc) << name << " of \"" << graphValue.name << "\" is invalid: " << why;
  if (*sharding != derived)
    return emitError(loc) << name << " of \"" << graphValue.name << "\" is "
                          << reshard::toString(mesh, *sharding)
                          << ", but the strategies on the IR give "
                          << reshard::toString(mesh, derived)
                          << "; edit tbc.strategy and run tbc-derive-shardings";
  return success();
}

LogicalResult checkShardings(DerivedStep &step) {
  PlannedStep &planned = step.planned;
  bool isSound = true;
  auto check = [&](Location loc, StringRef name, int value, Attribute found,
                   const reshard::Sharding &derived) {
    isSound = isSound && succeeded(checkSharding(step, loc, name, value, found, derived));
  };
  auto onArgument = [&](unsigned i, StringRef name, const reshard::Sharding &sharding) {
    if (Attribute found = planned.train.getArgAttr(i, name))
      check(planned.train.getLoc(), name, int(i), found, sharding);
  };
  auto onOp = [&](size_t i, StringRef name, const std::vector<int> &values,
                  const std::vector<reshard::Sharding> &shardings) {
    Operation *op = planned.step.ops[i];
    Attribute found = op->getAttr(name);
    if (!found || shardings.empty())
      return;
    auto list = dyn_cast<ArrayAttr>(found);
    if (isSound && (!list || list.size() != shardings.size())) {
      op->emitOpError() << name << " is no list of " << shardings.size() << " shardings";
      isSound = false;
    }
    for (size_t k = 0; isSound && k < shardings.size(); ++k)
      check(op->getLoc(), name, values[k], list[k], shardings[k]);
  };
  ShardingWalk(step).visit(onArgument, onOp);
  return success(isSound);
}

namespace {
struct DeriveShardings : impl::DeriveShardingsPassBase<DeriveShardings> {
  void runOnOperation() override {
    FailureOr<DerivedStep> &step = getAnalysis<DerivedStepAnalysis>().step;
    if (failed(step))
      return signalPassFailure();
    writeShardings(*step);
    markAnalysesPreserved<DerivedStepAnalysis>();
  }
};
} // namespace

} // namespace tbc

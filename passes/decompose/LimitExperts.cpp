//===- LimitExperts.cpp - Experts with a capacity --------------------------===//

#include "passes/decompose/LimitExperts.h"

#include "ir/Activation.h"
#include "ir/Experts.h"
#include "ir/FactorAnalysis.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_LIMITEXPERTSPASS
#include "passes/Passes.h.inc"

/// Labels of the dims: group (a sample), expert, slot, width in, inner dim, width out.
enum Label : int64_t { G, E, C, H, F, O };

/// Returns the number of samples of the tokens of `op`, if the tokens are ordered sample by sample.
static std::optional<int64_t> numSamples(RoutedExpertsOp op, const FactorAnalysis &analysis) {
  reshard::DimLayout tokens = analysis.dimLayout(op.getInput(), 0);
  if (!analysis.batchFactor() || tokens.segments.size() != 1)
    return std::nullopt;
  for (const reshard::Factor &factor : tokens.segments[0].factors) {
    if (factor.id == *analysis.batchFactor())
      return factor.size;
    if (factor.size != 1)
      return std::nullopt;
  }
  return std::nullopt;
}

static int64_t capacityOf(const ExpertCapacity &of, double factor) {
  double share = double(of.top) * double(of.tokens) / double(of.experts);
  return std::clamp<int64_t>(int64_t(std::ceil(std::min(factor * share, double(of.tokens)))), 1,
                             of.tokens);
}

static Value activate(Formula &f, Value x, StringRef activation) {
  if (activation == "silu")
    return f.make<SiluOp>(x.getType(), x);
  if (activation == "relu")
    return f.make<ReluOp>(x);
  return f.make<GeluOp>(x.getType(), x, activation == "gelu" ? "none" : "tanh");
}

/// [t, ..] as [g, t / g, ..].
static Value grouped(Formula &f, Value value, int64_t groups) {
  auto type = tensorType(value);
  return f.make<ReshapeOp>(
      value, ArrayRef<int64_t>{groups, type.getDimSize(0) / groups, type.getDimSize(1)},
      ArrayRef<int64_t>{2, 1}, ArrayRef<int64_t>{1, 1, 1});
}

/// Builds the new result of `op`.
static Value buildLimited(OpBuilder &builder, RoutedExpertsOp op, int64_t samples,
                          int64_t capacity) {
  Formula f{builder, op.getLoc()};
  Value weights = grouped(f, op.getWeights(), samples);
  Value slots = f.make<DispatchOp>(grouped(f, op.getInput(), samples), weights, capacity, false);
  Value inner = f.einsum(slots, op.getIn(), {G, E, C, H}, {E, F, H}, {G, E, C, F});
  int64_t width = op.getOut().getType().getDimSize(2);
  if (op.getGated()) {
    Value gate = f.make<SliceOp>(inner, 3, 0, width);
    Value up = f.make<SliceOp>(inner, 3, width, width);
    inner = f.mul(activate(f, gate, op.getActivation()), up);
  } else {
    inner = activate(f, inner, op.getActivation());
  }
  Value out = f.einsum(inner, op.getOut(), {G, E, C, F}, {E, O, F}, {G, E, C, O});
  Value tokens = f.make<CombineOp>(out, weights, true);
  auto type = tensorType(tokens);
  return f.make<ReshapeOp>(tokens, type.getShape(), ArrayRef<int64_t>{1, 1, 1},
                           ArrayRef<int64_t>{2, 1});
}

FailureOr<SmallVector<ExpertCapacity>> limitExperts(func::FuncOp function, double factor) {
  FactorAnalysis analysis(function);
  OpIds ids(function);
  SmallVector<ExpertCapacity> capacities;
  for (RoutedExpertsOp op : llvm::make_early_inc_range(function.getOps<RoutedExpertsOp>())) {
    std::optional<int64_t> samples = numSamples(op, analysis);
    if (!samples)
      return op.emitError("takes its tokens in an order in which samples are mixed, so there are "
                          "no groups that a capacity could be for; leave out --capacity-factor");
    ExpertCapacity of;
    of.experts = op.getOut().getType().getDimSize(0);
    of.top = op.getTop();
    of.tokens = op.getInput().getType().getDimSize(0) / *samples;
    of.capacity = capacityOf(of, factor);
    if (!llvm::is_contained(capacities, of))
      capacities.push_back(of);

    std::string base = getId(op).str();
    InsertionListener listener([&](Operation *inserted) {
      inserted->setAttr(
          kIdAttr,
          StringAttr::get(inserted->getContext(),
                          ids.unique(base + "." + inserted->getName().stripDialect().str())));
    });
    OpBuilder builder(op);
    builder.setListener(&listener);
    op.getResult().replaceAllUsesWith(buildLimited(builder, op, *samples, of.capacity));
    op.erase();
  }
  if (capacities.empty())
    return function.emitError("the model has no experts that tokens are routed to, for which "
                              "--capacity-factor could be; leave it out");
  return capacities;
}

namespace {
struct LimitExperts : impl::LimitExpertsPassBase<LimitExperts> {
  using LimitExpertsPassBase::LimitExpertsPassBase;
  void runOnOperation() override {
    if (!(factor > 0) || failed(limitExperts(getOperation(), factor)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc

//===- Experts.cpp - Mixture of experts ------------------------------------===//

#include "ir/Experts.h"
#include "ir/Activation.h"
#include "ir/ExpertWorkspace.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

using namespace mlir;

namespace tbc {

namespace {

/// Labels of the dims: token, expert, inner dim, width in and out.
enum Label : int64_t { T, E, F, H, O };

constexpr int64_t kInput[] = {T, H}, kWeights[] = {T, E}, kIn[] = {E, F, H}, kOut[] = {E, O, F},
                  kInner[] = {E, T, F}, kExpert[] = {E, T, O}, kResult[] = {T, O};

/// The sizes of a layer of experts; `parts`: dims of `in` per inner dim.
struct Sizes {
  Sizes(Value input, Value out, bool gated) {
    t = tensorType(input).getDimSize(0), h = tensorType(input).getDimSize(1);
    e = tensorType(out).getDimSize(0), o = tensorType(out).getDimSize(1);
    f = tensorType(out).getDimSize(2), parts = gated ? 2 : 1;
  }
  int64_t t, h, e, o, f, parts;
};

/// The factor rule's dims of all operands and results of a layer of experts.
struct ExpertDims {
  /// `rows`: the kind of the loops over tokens and the width out.
  ExpertDims(FactorRule &rule, const Sizes &n, LoopKind rows) {
    unsigned t = rule.addLoop(n.t, rows), e = rule.addLoop(n.e, LoopKind::Reduction);
    unsigned f = rule.addLoop(n.f, LoopKind::Reduction), h = rule.addLoop(n.h, LoopKind::Fixed);
    unsigned o = rule.addLoop(n.o, rows);
    input = FactorRule::dims({t, h});
    weights = FactorRule::dims({t, e});
    in = FactorRule::dims({e, f, h});
    if (n.parts == 2) // a shard of the dim is one of the gate and one of the rest
      in[1] = {{f}, {f}};
    out = FactorRule::dims({e, o, f});
    result = FactorRule::dims({t, o});
  }
  SmallVector<FactorRule::Dim, 4> input, weights, in, out, result;
};

/// The common part of both decompositions, in the wide element type.
struct Forward {
  Value x, w, in, out;
  /// The first layer's gate and the rest (null unless gated), act(gate), and the inner values.
  Value gate, up, activated, inner;
};

} // namespace

//===- types ---------------------------------------------------------------===//

static LogicalResult inferExperts(std::optional<Location> loc, Value input, Value weights, Value in,
                                  Value out, StringRef activation, bool gated, int64_t top,
                                  SmallVectorImpl<Type> &types) {
  auto x = tensorType(input), w = tensorType(weights), first = tensorType(in),
       second = tensorType(out);
  bool agree =
      x.getRank() == 2 && w.getRank() == 2 && first.getRank() == 3 && second.getRank() == 3;
  if (agree) {
    Sizes n(input, out, gated);
    agree = w.getShape() == ArrayRef<int64_t>{n.t, n.e} &&
            first.getShape() == ArrayRef<int64_t>{n.e, n.parts * n.f, n.h};
  }
  for (RankedTensorType type : {w, first, second})
    agree = agree && type.getElementType() == x.getElementType();
  if (!agree) // routed_experts_c1
    return emitOptionalError(loc, "routes ", x, " by ", w, " to experts ", first, " and ", second);
  if (activation != "silu" && activation != "gelu" && activation != "gelu_tanh" &&
      activation != "relu") // routed_experts_c2
    return emitOptionalError(loc, "has unknown activation \"", activation,
                             "\"; expected silu, gelu, gelu_tanh or relu");
  if (top < 1) // routed_experts_c2
    return emitOptionalError(loc, "routes each token to ", top, " experts");
  types.push_back(
      RankedTensorType::get({x.getDimSize(0), second.getDimSize(1)}, x.getElementType()));
  return success();
}

LogicalResult RoutedExpertsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferExperts(loc, adaptor.getInput(), adaptor.getWeights(), adaptor.getIn(),
                      adaptor.getOut(), adaptor.getActivation(), adaptor.getGated(),
                      adaptor.getTop(), types);
}

LogicalResult RoutedExpertsGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                    Adaptor adaptor, SmallVectorImpl<Type> &types) {
  SmallVector<Type> forward;
  if (failed(inferExperts(loc, adaptor.getInput(), adaptor.getWeights(), adaptor.getIn(),
                          adaptor.getOut(), adaptor.getActivation(), adaptor.getGated(),
                          adaptor.getTop(), forward)))
    return failure();
  if (adaptor.getCotangent().getType() != forward[0]) // routed_experts_grad_c1
    return emitOptionalError(loc, "has a cotangent of type ", adaptor.getCotangent().getType(),
                             ", expected ", forward[0]);
  types.assign({adaptor.getInput().getType(), adaptor.getWeights().getType(),
                adaptor.getIn().getType(), adaptor.getOut().getType()});
  return success();
}

/// The sizes of a dispatch or combine, each from an operand that has it; absent ones are 0.
struct Deal {
  Deal(Value tokens, Value slots, Value weights) {
    auto sizes = tensorType(weights);
    g = sizes.getDimSize(0), t = sizes.getDimSize(1), e = sizes.getDimSize(2);
    if (slots)
      c = tensorType(slots).getDimSize(2), h = tensorType(slots).getDimSize(3);
    if (tokens)
      h = tensorType(tokens).getDimSize(2);
  }
  int64_t g, t, e, c = 0, h = 0;
};

/// Infers from tokens[g, t, h] or slots[g, e, c, h], or both, beside weights[g, t, e].
static LogicalResult checkDeal(std::optional<Location> loc, Value tokens, Value slots,
                               Value weights) {
  auto w = tensorType(weights);
  bool agree = w.getRank() == 3 && (!tokens || tensorType(tokens).getRank() == 3) &&
               (!slots || tensorType(slots).getRank() == 4);
  for (Value value : {tokens, slots})
    agree = agree && (!value || tensorType(value).getElementType() == w.getElementType());
  if (agree) {
    Deal n(tokens, slots, weights);
    agree = (!tokens || tensorType(tokens).getShape() == ArrayRef<int64_t>{n.g, n.t, n.h}) &&
            (!slots || tensorType(slots).getShape() == ArrayRef<int64_t>{n.g, n.e, n.c, n.h});
  }
  if (agree)
    return success();
  if (tokens && slots) // combine_weights_grad_c1
    return emitOptionalError(loc, "deals ", tensorType(tokens), " and ", tensorType(slots), " by ",
                             w);
  return emitOptionalError(loc, "deals ", tensorType(tokens ? tokens : slots), " by ",
                           w); // dispatch_c1, combine_c1
}

LogicalResult DispatchOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(checkDeal(loc, adaptor.getInput(), {}, adaptor.getWeights())))
    return failure();
  int64_t capacity = adaptor.getCapacity();
  if (capacity < 1) // dispatch_c2
    return emitOptionalError(loc, "gives each expert ", capacity, " slots");
  Deal n(adaptor.getInput(), {}, adaptor.getWeights());
  types.push_back(RankedTensorType::get({n.g, n.e, capacity, n.h},
                                        tensorType(adaptor.getInput()).getElementType()));
  return success();
}

LogicalResult CombineOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(checkDeal(loc, {}, adaptor.getInput(), adaptor.getWeights())))
    return failure();
  Deal n({}, adaptor.getInput(), adaptor.getWeights());
  types.push_back(
      RankedTensorType::get({n.g, n.t, n.h}, tensorType(adaptor.getInput()).getElementType()));
  return success();
}

LogicalResult CombineWeightsGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                     Adaptor adaptor,
                                                     SmallVectorImpl<Type> &types) {
  if (failed(checkDeal(loc, adaptor.getCotangent(), adaptor.getInput(), adaptor.getWeights())))
    return failure();
  types.push_back(adaptor.getWeights().getType());
  return success();
}

//===- factors, cost -------------------------------------------------------===//

/// Backward reads the result of the first layer, one or two parts of it, and of its activation.
static FactorRule::Routing routing(int64_t top, bool gated) { return {E, F, top, gated ? 3 : 2}; }

FactorRule RoutedExpertsOp::getFactorRule() {
  FactorRule rule;
  ExpertDims dims(rule, Sizes(getInput(), getOut(), getGated()), LoopKind::Parallel);
  rule.operands = {dims.input, dims.weights, dims.in, dims.out};
  rule.results.push_back(dims.result);
  rule.routing = routing(getTop(), getGated());
  return rule;
}

FactorRule RoutedExpertsGradOp::getFactorRule() {
  FactorRule rule;
  // The gradients of the experts are sums over tokens; the gradient of the tokens is a sum over the
  // width out.
  ExpertDims dims(rule, Sizes(getInput(), getOut(), getGated()), LoopKind::Reduction);
  rule.operands = {dims.result, dims.input, dims.weights, dims.in, dims.out};
  rule.results = {dims.input, dims.weights, dims.in, dims.out};
  rule.routing = routing(getTop(), getGated());
  return rule;
}

void RoutedExpertsOp::resizeLoops(ArrayRef<int64_t>) {}
void RoutedExpertsGradOp::resizeLoops(ArrayRef<int64_t>) {}
KernelClass RoutedExpertsOp::getKernelClass() { return KernelClass::GroupedMatmul; }
KernelClass RoutedExpertsGradOp::getKernelClass() { return KernelClass::GroupedMatmul; }

/// `first`: the index of the operand x.
static WorkspaceFn workspaceOf(size_t first, bool gated, int64_t top, Type element) {
  ExpertSizes sizes;
  sizes.parts = gated ? 2 : 1, sizes.top = top;
  sizes.elementBytes = element.getIntOrFloatBitWidth() / 8;
  return [sizes, first](const std::vector<std::vector<int64_t>> &shapes) {
    ExpertSizes n = sizes;
    const std::vector<int64_t> &x = shapes[first], &out = shapes[first + 3];
    n.t = x[0], n.h = x[1], n.e = out[0], n.o = out[1], n.f = out[2];
    return ExpertWorkspace(n, /*isGradient=*/first == 1).bytes;
  };
}
WorkspaceFn expertWorkspace(RoutedExpertsOp op) {
  return workspaceOf(0, op.getGated(), op.getTop(), op.getInput().getType().getElementType());
}
WorkspaceFn expertWorkspace(RoutedExpertsGradOp op) {
  return workspaceOf(1, op.getGated(), op.getTop(), op.getInput().getType().getElementType());
}

/// Returns 2 FLOPs for each multiply-add of `in` matmuls with the first layer and `out` with the
/// second.
static double expertFlops(const Sizes &n, int64_t top, double in, double out) {
  return 2.0 * double(n.t) * double(top) * double(n.f) *
         (in * double(n.parts * n.h) + out * double(n.o));
}
double RoutedExpertsOp::getFlops() {
  return expertFlops(Sizes(getInput(), getOut(), getGated()), getTop(), 1, 1);
}
double RoutedExpertsGradOp::getFlops() {
  return expertFlops(Sizes(getInput(), getOut(), getGated()), getTop(), 3, 2);
}

unsigned RoutedExpertsOp::getExpertLoop() { return E; }
ExpertRole RoutedExpertsOp::getExpertRole() { return ExpertRole::Computes; }

namespace {
/// The dims of tokens, slots and weights; `experts` and `width` are the kinds of these two loops.
struct DealDims {
  DealDims(FactorRule &rule, const Deal &n, LoopKind experts, LoopKind width) {
    unsigned g = rule.addLoop(n.g), e = rule.addLoop(n.e, experts), h = rule.addLoop(n.h, width);
    unsigned t = rule.addLoop(n.t, LoopKind::Fixed), c = rule.addLoop(n.c, LoopKind::Fixed);
    tokens = FactorRule::dims({g, t, h});
    slots = FactorRule::dims({g, e, c, h});
    weights = FactorRule::dims({g, t, e});
  }
  SmallVector<FactorRule::Dim, 4> tokens, slots, weights;
};
/// The numbers of the loops over experts and over slots.
constexpr unsigned kDealtExpert = 1, kSlot = 4;
} // namespace

FactorRule DispatchOp::getFactorRule() {
  FactorRule rule;
  Deal n(getInput(), getResult(), getWeights());
  DealDims dims(rule, n, LoopKind::Parallel, LoopKind::Parallel);
  rule.operands = {dims.tokens, dims.weights};
  rule.results.push_back(dims.slots);
  return rule;
}

FactorRule CombineOp::getFactorRule() {
  FactorRule rule;
  Deal n(getResult(), getInput(), getWeights());
  DealDims dims(rule, n, LoopKind::Reduction, LoopKind::Parallel);
  rule.operands = {dims.slots, dims.weights};
  rule.results.push_back(dims.tokens);
  return rule;
}

FactorRule CombineWeightsGradOp::getFactorRule() {
  FactorRule rule;
  Deal n(getCotangent(), getInput(), getWeights());
  DealDims dims(rule, n, LoopKind::Parallel, LoopKind::Reduction);
  rule.operands = {dims.tokens, dims.slots, dims.weights};
  rule.results.push_back(dims.weights);
  return rule;
}

void DispatchOp::resizeLoops(ArrayRef<int64_t> sizes) { setCapacity(sizes[kSlot]); }
void CombineOp::resizeLoops(ArrayRef<int64_t>) {}
void CombineWeightsGradOp::resizeLoops(ArrayRef<int64_t>) {}
KernelClass DispatchOp::getKernelClass() { return KernelClass::Gather; }
KernelClass CombineOp::getKernelClass() { return KernelClass::Gather; }
KernelClass CombineWeightsGradOp::getKernelClass() { return KernelClass::Gather; }
double DispatchOp::getFlops() {
  return getWeighted() ? double(getResult().getType().getNumElements()) : 0;
}
double CombineOp::getFlops() {
  return (getWeighted() ? 2.0 : 1.0) * double(getInput().getType().getNumElements());
}
double CombineWeightsGradOp::getFlops() {
  return 2.0 * double(getInput().getType().getNumElements());
}
unsigned DispatchOp::getExpertLoop() { return kDealtExpert; }
unsigned CombineOp::getExpertLoop() { return kDealtExpert; }
ExpertRole DispatchOp::getExpertRole() { return ExpertRole::Deals; }
ExpertRole CombineOp::getExpertRole() { return ExpertRole::Collects; }

//===- gradient, decomposition ---------------------------------------------===//

LogicalResult RoutedExpertsOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                        ArrayRef<bool> needed,
                                        SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0] || !llvm::is_contained(needed, true))
    return success();
  auto grad =
      builder.create<RoutedExpertsGradOp>(getLoc(), cotangents[0], getInput(), getWeights(),
                                          getIn(), getOut(), getActivation(), getGated(), getTop());
  for (auto [i, result] : llvm::enumerate(grad.getResults()))
    if (needed[i])
      operandCotangents[i] = result;
  return success();
}

LogicalResult DispatchOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                   ArrayRef<bool> needed,
                                   SmallVectorImpl<Value> &operandCotangents) {
  Value dy = cotangents[0];
  if (dy && needed[0])
    operandCotangents[0] =
        builder.create<CombineOp>(getLoc(), dy, getWeights(), getWeighted()).getResult();
  if (dy && needed[1] && getWeighted())
    operandCotangents[1] =
        builder.create<CombineWeightsGradOp>(getLoc(), getInput(), dy, getWeights()).getResult();
  return success();
}

LogicalResult CombineOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  Value dy = cotangents[0];
  int64_t capacity = getInput().getType().getDimSize(2);
  if (dy && needed[0])
    operandCotangents[0] =
        builder.create<DispatchOp>(getLoc(), dy, getWeights(), capacity, getWeighted()).getResult();
  if (dy && needed[1] && getWeighted())
    operandCotangents[1] =
        builder.create<CombineWeightsGradOp>(getLoc(), dy, getInput(), getWeights()).getResult();
  return success();
}

static Value activate(Formula &f, Value x, StringRef activation) {
  if (activation == "silu")
    return f.make<SiluOp>(x.getType(), x);
  if (activation == "relu")
    return f.make<ReluOp>(x);
  return f.make<GeluOp>(x.getType(), x, activation == "gelu" ? "none" : "tanh");
}

static Value activationGrad(Formula &f, Value x, Value dy, StringRef activation) {
  if (activation == "silu")
    return f.make<SiluGradOp>(x.getType(), x, dy);
  if (activation == "relu")
    return f.make<ReluGradOp>(x.getType(), x, dy);
  return f.make<GeluGradOp>(x.getType(), x, dy, activation == "gelu" ? "none" : "tanh");
}

template <typename Op> static Forward forward(Formula &f, Op op) {
  Forward v;
  Sizes n(op.getInput(), op.getOut(), op.getGated());
  v.x = f.wide(op.getInput()), v.w = f.wide(op.getWeights());
  v.in = f.wide(op.getIn()), v.out = f.wide(op.getOut());
  v.gate = f.einsum(v.x, v.in, kInput, kIn, kInner);
  if (op.getGated()) {
    Value both = v.gate;
    v.gate = f.make<SliceOp>(both, 2, 0, n.f);
    v.up = f.make<SliceOp>(both, 2, n.f, n.f);
  }
  v.activated = activate(f, v.gate, op.getActivation());
  v.inner = op.getGated() ? f.mul(v.activated, v.up) : v.activated;
  return v;
}

LogicalResult RoutedExpertsOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Forward v = forward(f, *this);
  Value each = f.einsum(v.inner, v.out, kInner, kOut, kExpert);
  results.assign(
      {f.cast(f.einsum(each, v.w, kExpert, kWeights, kResult), getType().getElementType())});
  return success();
}

LogicalResult RoutedExpertsGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Forward v = forward(f, *this);
  Value dy = f.wide(getCotangent());
  Value dInner = f.einsum(dy, v.out, kResult, kOut, kInner);
  Value dW = f.einsum(v.inner, dInner, kInner, kInner, kWeights);
  dW = f.select(f.compare(v.w, f.number(v.w, 0), "ne"), dW, f.number(dW, 0));

  SmallVector<int64_t> order{1, 0};
  Value w = broadcastTo(builder, getLoc(), f.make<TransposeOp>(v.w, order),
                        tensorType(v.inner).getShape(), {0, 1});
  Value dOut = f.einsum(f.mul(v.inner, w), dy, kInner, kResult, kOut);
  dInner = f.mul(dInner, w);
  Value dFirst = activationGrad(f, v.gate, v.up ? f.mul(dInner, v.up) : dInner, getActivation());
  if (v.up)
    dFirst = f.make<ConcatOp>(ValueRange{dFirst, f.mul(dInner, v.activated)}, 2);
  Value dX = f.einsum(dFirst, v.in, kInner, kIn, kInput);
  Value dIn = f.einsum(dFirst, v.x, kInner, kInput, kIn);
  Type element = tensorType(getInput()).getElementType();
  for (Value value : {dX, dW, dIn, dOut})
    results.push_back(f.cast(value, element));
  return success();
}

} // namespace tbc

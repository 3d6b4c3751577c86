//===- Recurrent.cpp - Recurrent networks ----------------------------------===//

#include "ir/Recurrent.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

namespace {

/// Labels of the dims: step, sample, gates and rows of R, hidden.
enum Label : int64_t { S, B, G, H };
constexpr int64_t kRows[] = {B, H}, kWeight[] = {G, H}, kGates[] = {B, G}, kStates[] = {S, B, H},
                  kAllGates[] = {S, B, G};

/// Sizes of a recurrence with `count` gates, read off `gates` [s, b, count * h].
struct Sizes {
  Sizes(Value gates, int64_t count) : count(count) {
    auto type = tensorType(gates);
    if (type.getRank() == 3 && type.getDimSize(2) % count == 0)
      s = type.getDimSize(0), b = type.getDimSize(1), h = type.getDimSize(2) / count;
  }
  int64_t count, s = 0, b = 0, h = 0;
};

/// The dims of the operands and results of a recurrence.
struct RecurrentDims {
  RecurrentDims(FactorRule &rule, const Sizes &n) {
    unsigned s = rule.addLoop(n.s, LoopKind::Fixed), b = rule.addLoop(n.b);
    unsigned h = rule.addLoop(n.h, LoopKind::Fixed), k = rule.addLoop(n.h, LoopKind::Fixed);
    FactorRule::Dim all;
    for (int64_t i = 0; i < n.count; ++i)
      all.push_back({h});
    gates = {FactorRule::dim(s), FactorRule::dim(b), all};
    states = FactorRule::dims({s, b, h});
    state = FactorRule::dims({b, h});
    weight = {all, FactorRule::dim(k)};
    bias = FactorRule::dims({h});
  }
  SmallVector<FactorRule::Dim, 4> gates, states, state, weight, bias;
};

/// A walk over the steps in the wide element type; steps are stacked in the order of the sequence.
struct Walk {
  Walk(OpBuilder &builder, Operation *op, const Sizes &n, bool reverse)
      : f{builder, op->getLoc()}, n(n), reverse(reverse),
        element(tensorType(op->getResult(0)).getElementType()) {}

  Formula f;
  Sizes n;
  bool reverse;
  Type element;

  /// Step number i forwards in time.
  int64_t step(int64_t i) const { return reverse ? n.s - 1 - i : i; }
  /// Rows [b, ...] of step `t`.
  Value at(Value all, int64_t t) {
    auto shape = tensorType(all).getShape();
    Value row = f.make<SliceOp>(all, 0, t, 1);
    return f.make<ReshapeOp>(row, SmallVector<int64_t>{shape[1], shape[2]},
                             SmallVector<int64_t>{0, 1, 1}, SmallVector<int64_t>{1, 1});
  }
  Value gate(Value gates, int64_t i, int64_t count = 1) {
    return f.make<SliceOp>(gates, tensorType(gates).getRank() - 1, i * n.h, count * n.h);
  }
  Value rows(Value weight, int64_t i, int64_t count = 1) {
    return f.make<SliceOp>(weight, 0, i * n.h, count * n.h);
  }
  /// R h, and its transpose.
  Value product(Value state, Value weight) {
    return f.einsum(state, weight, kRows, kWeight, kGates);
  }
  Value transposed(Value gates, Value weight) {
    return f.einsum(gates, weight, kGates, kWeight, kRows);
  }
  Value join(ValueRange parts, int64_t dim) { return f.make<ConcatOp>(parts, dim); }
  /// Values [b, ...] of the steps in time as [s, b, ...], in the element type of the op.
  Value stack(ArrayRef<Value> steps) {
    SmallVector<Value> parts;
    for (int64_t t = 0; t < n.s; ++t) {
      Value value = steps[step(t)];
      SmallVector<int64_t> shape(tensorType(value).getShape());
      parts.push_back(f.make<ReshapeOp>(value, shape, SmallVector<int64_t>{1, 1},
                                        SmallVector<int64_t>{0, 1, 1}));
    }
    return f.cast(join(parts, 0), element);
  }
  Value complement(Value x) { return f.sub(f.number(x, 1), x); }
  /// Derivatives of sigmoid and tanh by their values.
  Value sigmoidGrad(Value y, Value dy) { return f.mul(dy, f.mul(y, complement(y))); }
  Value tanhGrad(Value y, Value dy) { return f.mul(dy, complement(f.mul(y, y))); }
};

/// The states before each step, [s, b, h].
Value statesBefore(Formula &f, Value states, Value first, bool reverse) {
  auto shape = tensorType(states).getShape();
  SmallVector<int64_t> sizes(tensorType(first).getShape());
  first =
      f.make<ReshapeOp>(first, sizes, SmallVector<int64_t>{1, 1}, SmallVector<int64_t>{0, 1, 1});
  if (shape[0] == 1)
    return first;
  Value others = f.make<SliceOp>(states, 0, reverse ? 1 : 0, shape[0] - 1);
  return f.make<ConcatOp>(reverse ? ValueRange{others, first} : ValueRange{first, others}, 0);
}

/// The gradient of R: `gates` are the cotangents of its matmuls with `states`.
Value weightGrad(Formula &f, Value gates, Value states) {
  return f.einsum(gates, states, kAllGates, kStates, kWeight);
}

} // namespace

//===- types ---------------------------------------------------------------===//

/// Checks that each of `values` has the shape beside it, and all of them one element type.
static LogicalResult checkShapes(std::optional<Location> loc,
                                 ArrayRef<std::pair<Value, SmallVector<int64_t>>> values) {
  Type element = tensorType(values[0].first).getElementType();
  for (const auto &[value, shape] : values)
    if (tensorType(value).getShape() != ArrayRef<int64_t>(shape) ||
        tensorType(value).getElementType() != element)
      return emitOptionalError(loc, "has an operand of type ", value.getType(), ", expected ",
                               RankedTensorType::get(shape, element));
  return success();
}

/// The types of `shapes` with the element type of `like`.
static void setTypes(Value like, ArrayRef<SmallVector<int64_t>> shapes,
                     SmallVectorImpl<Type> &types) {
  for (const SmallVector<int64_t> &shape : shapes)
    types.push_back(RankedTensorType::get(shape, tensorType(like).getElementType()));
}

static LogicalResult requireGates(std::optional<Location> loc, Value gates, const Sizes &n) {
  if (n.h == 0)
    return emitOptionalError(loc, "has gates of type ", gates.getType(), "; expected [s, b, ",
                             n.count, " * h]");
  return success();
}

LogicalResult LstmOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  Sizes n(x, 4);
  SmallVector<int64_t> states{n.s, n.b, n.h}, state{n.b, n.h}, gates{n.s, n.b, 4 * n.h};
  if (failed(requireGates(loc, x, n)) ||
      failed(checkShapes(loc, {{x, gates},
                               {adaptor.getWeight(), {4 * n.h, n.h}},
                               {adaptor.getHidden(), state},
                               {adaptor.getCell(), state}}))) // lstm_c1
    return failure();
  setTypes(x, {states, states, gates}, types);
  return success();
}

LogicalResult LstmGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value gates = adaptor.getGates();
  Sizes n(gates, 4);
  SmallVector<int64_t> states{n.s, n.b, n.h}, state{n.b, n.h}, all{n.s, n.b, 4 * n.h};
  if (failed(requireGates(loc, gates, n)) ||
      failed(checkShapes(loc, {{gates, all},
                               {adaptor.getCotangent(), states},
                               {adaptor.getCellsCotangent(), states},
                               {adaptor.getWeight(), {4 * n.h, n.h}},
                               {adaptor.getCell(), state},
                               {adaptor.getCells(), states}}))) // lstm_grad_c1
    return failure();
  setTypes(gates, {all, state, state}, types);
  return success();
}

LogicalResult GruOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  Sizes n(x, 3);
  SmallVector<int64_t> states{n.s, n.b, n.h}, gates{n.s, n.b, 3 * n.h};
  if (failed(requireGates(loc, x, n)) ||
      failed(checkShapes(loc, {{x, gates},
                               {adaptor.getWeight(), {3 * n.h, n.h}},
                               {adaptor.getBias(), {n.h}},
                               {adaptor.getHidden(), {n.b, n.h}}}))) // gru_c1
    return failure();
  setTypes(x, {states, gates, states}, types);
  return success();
}

LogicalResult GruGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value gates = adaptor.getGates();
  Sizes n(gates, 3);
  SmallVector<int64_t> states{n.s, n.b, n.h}, state{n.b, n.h}, all{n.s, n.b, 3 * n.h};
  if (failed(requireGates(loc, gates, n)) ||
      failed(checkShapes(loc, {{gates, all},
                               {adaptor.getCotangent(), states},
                               {adaptor.getWeight(), {3 * n.h, n.h}},
                               {adaptor.getHidden(), state},
                               {adaptor.getStates(), states},
                               {adaptor.getProduct(), states}}))) // gru_grad_c1
    return failure();
  setTypes(gates, {all, states, state}, types);
  return success();
}

//===- factors, cost -------------------------------------------------------===//

FactorRule LstmOp::getFactorRule() {
  FactorRule rule;
  RecurrentDims d(rule, Sizes(getInput(), 4));
  rule.operands = {d.gates, d.weight, d.state, d.state};
  rule.results = {d.states, d.states, d.gates};
  return rule;
}

FactorRule LstmGradOp::getFactorRule() {
  FactorRule rule;
  RecurrentDims d(rule, Sizes(getGates(), 4));
  rule.operands = {d.states, d.states, d.weight, d.state, d.states, d.gates};
  rule.results = {d.gates, d.state, d.state};
  return rule;
}

FactorRule GruOp::getFactorRule() {
  FactorRule rule;
  RecurrentDims d(rule, Sizes(getInput(), 3));
  rule.operands = {d.gates, d.weight, d.bias, d.state};
  rule.results = {d.states, d.gates, d.states};
  return rule;
}

FactorRule GruGradOp::getFactorRule() {
  FactorRule rule;
  RecurrentDims d(rule, Sizes(getGates(), 3));
  rule.operands = {d.states, d.weight, d.state, d.states, d.gates, d.states};
  rule.results = {d.gates, d.states, d.state};
  return rule;
}

/// Returns the FLOPs of a matmul of each state with R.
static double recurrentFlops(const Sizes &n) {
  return 2.0 * double(n.count * n.h) * double(n.h) * double(n.s) * double(n.b);
}
double LstmOp::getFlops() { return recurrentFlops(Sizes(getInput(), 4)); }
double LstmGradOp::getFlops() { return recurrentFlops(Sizes(getGates(), 4)); }
double GruOp::getFlops() { return recurrentFlops(Sizes(getInput(), 3)); }
double GruGradOp::getFlops() { return recurrentFlops(Sizes(getGates(), 3)); }

//===- gradients -----------------------------------------------------------===//

LogicalResult LstmOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                               ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (cotangents[2])
    return emitOpError("is not differentiable through its gates");
  if ((!cotangents[0] && !cotangents[1]) || !llvm::is_contained(needed, true))
    return success();
  Formula f{builder, getLoc()};
  auto orZero = [&](Value cotangent) { return cotangent ? cotangent : f.number(getResult(), 0); };
  auto grad =
      builder.create<LstmGradOp>(getLoc(), orZero(cotangents[0]), orZero(cotangents[1]),
                                 getWeight(), getCell(), getCells(), getGates(), getReverse());
  if (needed[0])
    operandCotangents[0] = grad.getGatesCotangent();
  if (needed[1])
    operandCotangents[1] = weightGrad(f, grad.getGatesCotangent(),
                                      statesBefore(f, getResult(), getHidden(), getReverse()));
  if (needed[2])
    operandCotangents[2] = grad.getHiddenCotangent();
  if (needed[3])
    operandCotangents[3] = grad.getCellCotangent();
  return success();
}

LogicalResult GruOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents, ArrayRef<bool> needed,
                              SmallVectorImpl<Value> &operandCotangents) {
  if (cotangents[1] || cotangents[2])
    return emitOpError("is not differentiable through its gates");
  if (!cotangents[0] || !llvm::is_contained(needed, true))
    return success();
  Formula f{builder, getLoc()};
  auto grad =
      builder.create<GruGradOp>(getLoc(), cotangents[0], getWeight(), getHidden(), getResult(),
                                getGates(), getProduct(), getReverse(), getResetAfter());
  Value gates = grad.getGatesCotangent(), product = grad.getProductCotangent();
  if (needed[0])
    operandCotangents[0] = gates;
  if (needed[1]) {
    int64_t h = tensorType(getBias()).getDimSize(0);
    Value before = statesBefore(f, getResult(), getHidden(), getReverse());
    Value both = weightGrad(f, f.make<SliceOp>(gates, 2, 0, 2 * h), before);
    Value last = weightGrad(f, product, getResetAfter() ? before : getProduct());
    operandCotangents[1] = f.make<ConcatOp>(ValueRange{both, last}, 0);
  }
  if (needed[2])
    operandCotangents[2] = f.sum(product, {0, 1});
  if (needed[3])
    operandCotangents[3] = grad.getHiddenCotangent();
  return success();
}

//===- decompositions ------------------------------------------------------===//

LogicalResult LstmOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Walk w(builder, *this, Sizes(getInput(), 4), getReverse());
  Formula &f = w.f;
  Value x = f.wide(getInput()), weight = f.wide(getWeight());
  Value h = f.wide(getHidden()), c = f.wide(getCell());
  SmallVector<Value> states, cells, gates;
  for (int64_t step = 0; step < w.n.s; ++step) {
    Value sum = f.add(w.at(x, w.step(step)), w.product(h, weight));
    Value i = f.sigmoid(w.gate(sum, 0)), o = f.sigmoid(w.gate(sum, 1));
    Value forget = f.sigmoid(w.gate(sum, 2)), g = f.tanh(w.gate(sum, 3));
    c = f.add(f.mul(forget, c), f.mul(i, g));
    h = f.mul(o, f.tanh(c));
    states.push_back(h);
    cells.push_back(c);
    gates.push_back(w.join({i, o, forget, g}, 1));
  }
  results.assign({w.stack(states), w.stack(cells), w.stack(gates)});
  return success();
}

LogicalResult LstmGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Walk w(builder, *this, Sizes(getGates(), 4), getReverse());
  Formula &f = w.f;
  Value dy = f.wide(getCotangent()), dcells = f.wide(getCellsCotangent());
  Value weight = f.wide(getWeight()), cells = f.wide(getCells()), gates = f.wide(getGates());
  Value dh, dc;
  SmallVector<Value> dgates(w.n.s);
  for (int64_t step = w.n.s; step-- > 0;) {
    int64_t t = w.step(step);
    Value now = w.at(gates, t), c = w.at(cells, t);
    Value before = step == 0 ? f.wide(getCell()) : w.at(cells, w.step(step - 1));
    Value i = w.gate(now, 0), o = w.gate(now, 1), forget = w.gate(now, 2), g = w.gate(now, 3);
    Value dyt = w.at(dy, t), dct = w.at(dcells, t), tanhC = f.tanh(c);
    dh = dh ? f.add(dyt, dh) : dyt;
    dc = f.add(dc ? f.add(dct, dc) : dct, w.tanhGrad(tanhC, f.mul(dh, o)));
    Value all = w.join({w.sigmoidGrad(i, f.mul(dc, g)), w.sigmoidGrad(o, f.mul(dh, tanhC)),
                        w.sigmoidGrad(forget, f.mul(dc, before)), w.tanhGrad(g, f.mul(dc, i))},
                       1);
    dgates[step] = all;
    dh = w.transposed(all, weight);
    dc = f.mul(dc, forget);
  }
  results.assign({w.stack(dgates), f.cast(dh, w.element), f.cast(dc, w.element)});
  return success();
}

LogicalResult GruOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Walk w(builder, *this, Sizes(getInput(), 3), getReverse());
  Formula &f = w.f;
  Value x = f.wide(getInput()), weight = f.wide(getWeight()), h = f.wide(getHidden());
  Value first = w.rows(weight, 0, 2), last = w.rows(weight, 2);
  Value bias = f.along(f.wide(getBias()), h, 1);
  SmallVector<Value> states, gates, products;
  for (int64_t step = 0; step < w.n.s; ++step) {
    Value now = w.at(x, w.step(step));
    Value sum = f.add(w.gate(now, 0, 2), w.product(h, first));
    Value z = f.sigmoid(w.gate(sum, 0)), r = f.sigmoid(w.gate(sum, 1)), u, inside;
    if (getResetAfter()) {
      u = f.add(w.product(h, last), bias);
      inside = f.mul(r, u);
    } else {
      u = f.mul(r, h);
      inside = f.add(w.product(u, last), bias);
    }
    Value candidate = f.tanh(f.add(w.gate(now, 2), inside));
    h = f.add(f.mul(w.complement(z), candidate), f.mul(z, h));
    states.push_back(h);
    gates.push_back(w.join({z, r, candidate}, 1));
    products.push_back(u);
  }
  results.assign({w.stack(states), w.stack(gates), w.stack(products)});
  return success();
}

LogicalResult GruGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Walk w(builder, *this, Sizes(getGates(), 3), getReverse());
  Formula &f = w.f;
  Value dy = f.wide(getCotangent()), weight = f.wide(getWeight()), states = f.wide(getStates());
  Value gates = f.wide(getGates()), products = f.wide(getProduct());
  Value first = w.rows(weight, 0, 2), last = w.rows(weight, 2);
  Value dh;
  SmallVector<Value> dgates(w.n.s), dproducts(w.n.s);
  for (int64_t step = w.n.s; step-- > 0;) {
    int64_t t = w.step(step);
    Value now = w.at(gates, t), u = w.at(products, t), dyt = w.at(dy, t);
    Value before = step == 0 ? f.wide(getHidden()) : w.at(states, w.step(step - 1));
    Value z = w.gate(now, 0), r = w.gate(now, 1), candidate = w.gate(now, 2);
    dh = dh ? f.add(dyt, dh) : dyt;
    Value dz = w.sigmoidGrad(z, f.mul(dh, f.sub(before, candidate)));
    Value dn = w.tanhGrad(candidate, f.mul(dh, w.complement(z))), dr, du;
    dh = f.mul(dh, z);
    if (getResetAfter()) {
      du = f.mul(dn, r);
      dr = f.mul(dn, u);
      dh = f.add(dh, w.transposed(du, last));
    } else {
      du = dn;
      Value dReset = w.transposed(dn, last);
      dr = f.mul(dReset, before);
      dh = f.add(dh, f.mul(dReset, r));
    }
    dr = w.sigmoidGrad(r, dr);
    dh = f.add(dh, w.transposed(w.join({dz, dr}, 1), first));
    dgates[step] = w.join({dz, dr, dn}, 1);
    dproducts[step] = du;
  }
  results.assign({w.stack(dgates), w.stack(dproducts), f.cast(dh, w.element)});
  return success();
}

} // namespace tbc

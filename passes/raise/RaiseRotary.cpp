//===- RaiseRotary.cpp - Rotary positions ----------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Activation.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace mlir;

namespace tbc::raise {

namespace {

//===- halves --------------------------------------------------------------===//

/// Returns the elements of one half of `dense`, if its halves along `dim` are equal; else empty.
SmallVector<Attribute> halfOfElements(DenseElementsAttr dense, int64_t dim) {
  auto shape = dense.getType().getShape();
  int64_t block = shape[dim] / 2;
  for (int64_t size : shape.drop_front(dim + 1))
    block *= size;
  SmallVector<Attribute> all(dense.getValues<Attribute>()), kept;
  for (int64_t i = 0; i < int64_t(all.size()); ++i) {
    if (i / block % 2 == 0)
      kept.push_back(all[i]);
    else if (all[i] != all[i - block])
      return {};
  }
  return kept;
}

bool keepsShape(Operation *op) {
  return op->hasTrait<OpTrait::SameOperandsAndResultShape>() ||
         op->hasTrait<OpTrait::SameOperandsAndResultType>();
}

/// Whether the two halves of `value` along `dim` are known to be equal.
bool hasEqualHalves(Value value, int64_t dim) {
  Operation *op = value.getDefiningOp();
  if (!op || tensorType(value).getDimSize(dim) % 2 != 0)
    return false;
  if (splatNumber(value))
    return true;
  if (auto concat = dyn_cast<ConcatOp>(op))
    return int64_t(concat.getDim()) == dim && concat.getInputs().size() == 2 &&
           concat.getInputs()[0] == concat.getInputs()[1];
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    return dense && !halfOfElements(dense, dim).empty();
  }
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    auto *it = llvm::find(broadcast.getDims(), dim);
    return it == broadcast.getDims().end() ||
           hasEqualHalves(broadcast.getInput(), it - broadcast.getDims().begin());
  }
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return hasEqualHalves(transpose.getInput(), transpose.getPermutation()[dim]);
  return op->getNumOperands() > 0 && keepsShape(op) &&
         llvm::all_of(op->getOperands(), [&](Value v) { return hasEqualHalves(v, dim); });
}

/// Returns the first half along `dim` of a tensor with equal halves: repeats its ops on half of the
/// operands.
Value firstHalf(OpBuilder &builder, Value value, int64_t dim) {
  Operation *op = value.getDefiningOp();
  Location loc = op->getLoc();
  auto type = tensorType(value);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] /= 2;
  auto half = RankedTensorType::get(shape, type.getElementType());
  if (auto number = splatNumber(value))
    return splat(builder, loc, half, *number);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return concat.getInputs()[0];
  if (auto constant = dyn_cast<ConstantOp>(op))
    return builder.create<ConstantOp>(
        loc, half,
        DenseElementsAttr::get(half,
                               halfOfElements(cast<DenseElementsAttr>(constant.getValue()), dim)));
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    Value input = broadcast.getInput();
    auto *it = llvm::find(broadcast.getDims(), dim);
    if (it != broadcast.getDims().end())
      input = firstHalf(builder, input, it - broadcast.getDims().begin());
    return builder.create<BroadcastOp>(loc, half, input, broadcast.getDims());
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    Value input = firstHalf(builder, transpose.getInput(), transpose.getPermutation()[dim]);
    return builder.create<TransposeOp>(loc, input, transpose.getPermutation());
  }
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(firstHalf(builder, operand, dim));
  OperationState state(loc, op->getName(), operands, {half}, op->getAttrs());
  state.attributes.erase(kIdAttr);
  return builder.create(state)->getResult(0);
}

/// A slice of half of the last dim: the half and the sliced value.
struct Half {
  Value whole;
  bool isSecond = false;
};

std::optional<Half> matchHalf(Value value) {
  auto slice = definedBy<SliceOp>(value);
  if (!slice)
    return std::nullopt;
  auto whole = tensorType(slice.getInput());
  int64_t last = whole.getRank() - 1, size = slice.getSize(), offset = slice.getOffset();
  if (int64_t(slice.getDim()) != last || 2 * size != whole.getDimSize(last) ||
      (offset != 0 && offset != size))
    return std::nullopt;
  return Half{slice.getInput(), offset != 0};
}

/// Returns x if `value` is [-x2, x1], its halves swapped and the first negated.
Value matchRotatedHalf(Value value) {
  auto concat = definedBy<ConcatOp>(value);
  if (!concat || concat.getInputs().size() != 2 ||
      int64_t(concat.getDim()) != concat.getType().getRank() - 1)
    return {};
  auto negated = definedBy<NegOp>(concat.getInputs()[0]);
  auto second = negated ? matchHalf(negated.getInput()) : std::nullopt;
  auto first = matchHalf(concat.getInputs()[1]);
  if (!first || !second || first->whole != second->whole || first->isSecond || !second->isSecond)
    return {};
  return first->whole;
}

//===- tables --------------------------------------------------------------===//

/// A table over positions and the last dim, or also over samples (dim 0 of x) in front; and the dim
/// of x for positions.
struct Table {
  Value value;
  int64_t positions;

  int64_t lastDim() const { return tensorType(value).getRank() - 1; }
};

std::optional<Table> matchTable(Value value) {
  int64_t numDims = tensorType(value).getRank();
  Spread spread = Spread::of(value).strip();
  ArrayRef<int64_t> dims = spread.dims;
  // Dims of size 1 that strip removed are broadcast along no dim.
  if (dims.size() < 2 || dims.back() != numDims - 1 || llvm::is_contained(dims, -1))
    return std::nullopt;
  int64_t positions = dims[dims.size() - 2];
  bool isPerSample = dims.size() == 3 && dims[0] == 0 && positions > 0;
  return dims.size() == 2 || isPerSample ? std::optional(Table{spread.value, positions})
                                         : std::nullopt;
}

/// Replaces `root` by rotary(x); the tables have one half of the last dim.
void replaceByRotary(Operation *root, Value x, Value cos, Value sin, int64_t positions,
                     PatternRewriter &rewriter) {
  Location loc = root->getLoc();
  int64_t numDims = tensorType(x).getRank();
  // Positions become the last dim but one.
  SmallVector<int64_t> permutation(numDims), inverse(numDims);
  std::iota(permutation.begin(), permutation.end(), 0);
  permutation.erase(permutation.begin() + positions);
  permutation.insert(permutation.end() - 1, positions);
  for (auto [i, dim] : llvm::enumerate(permutation))
    inverse[dim] = i;
  bool isInPlace = positions == numDims - 2;
  if (!isInPlace)
    x = rewriter.create<TransposeOp>(loc, x, permutation);
  auto rotary = rewriter.create<RotaryOp>(loc, x, cos, sin, /*inverse=*/false);
  takeIdentity(rotary, root);
  Value result = rotary;
  if (!isInPlace)
    result = rewriter.create<TransposeOp>(loc, result, inverse);
  rewriter.replaceOp(root, result);
}

/// Raises x * cos + [-x2, x1] * sin, with tables over the whole last dim that have equal halves.
struct RaiseRotateHalf : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AddOp add, PatternRewriter &rewriter) const override {
    auto direct = definedBy<MulOp>(add.getLhs()), rotated = definedBy<MulOp>(add.getRhs());
    if (!direct || !rotated)
      return failure();
    for (int order = 0; order < 4; ++order) {
      if (order == 2)
        std::swap(direct, rotated);
      Value turned = order % 2 ? rotated.getLhs() : rotated.getRhs();
      Value x = matchRotatedHalf(turned);
      Value cosOperand = x ? otherOperand(direct, x) : Value();
      if (!cosOperand)
        continue;
      auto cos = matchTable(cosOperand), sin = matchTable(otherOperand(rotated, turned));
      if (!cos || !sin || cos->positions != sin->positions || cos->lastDim() != sin->lastDim())
        continue;
      int64_t last = cos->lastDim();
      if (!hasEqualHalves(cos->value, last) || !hasEqualHalves(sin->value, last))
        continue;
      replaceByRotary(add, x, firstHalf(rewriter, cos->value, last),
                      firstHalf(rewriter, sin->value, last), cos->positions, rewriter);
      return success();
    }
    return failure();
  }
};

/// A half of x times a table, or null.
struct HalfProduct {
  Half half;
  Table table;
};

std::optional<HalfProduct> matchHalfProduct(Value value) {
  auto mul = definedBy<MulOp>(value);
  if (!mul)
    return std::nullopt;
  for (auto [x, factor] :
       {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
    auto half = matchHalf(x);
    auto table = half ? matchTable(factor) : std::nullopt;
    if (table)
      return HalfProduct{*half, *table};
  }
  return std::nullopt;
}

/// [x1 * cos - x2 * sin, x2 * cos + x1 * sin]
struct RaiseHalves : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ConcatOp concat, PatternRewriter &rewriter) const override {
    if (concat.getInputs().size() != 2 ||
        int64_t(concat.getDim()) != concat.getType().getRank() - 1)
      return failure();
    auto sub = definedBy<SubOp>(concat.getInputs()[0]);
    auto add = definedBy<AddOp>(concat.getInputs()[1]);
    if (!sub || !add)
      return failure();
    auto x1Cos = matchHalfProduct(sub.getLhs()), x2Sin = matchHalfProduct(sub.getRhs());
    auto x2Cos = matchHalfProduct(add.getLhs()), x1Sin = matchHalfProduct(add.getRhs());
    if (!x1Cos || !x2Sin || !x2Cos || !x1Sin)
      return failure();
    if (x1Sin->half.isSecond)
      std::swap(x2Cos, x1Sin);
    const HalfProduct *products[] = {&*x1Cos, &*x2Sin, &*x2Cos, &*x1Sin};
    const bool isSecond[] = {false, true, true, false};
    for (auto [found, expected] : llvm::zip_equal(products, isSecond))
      if (found->half.whole != x1Cos->half.whole || found->half.isSecond != expected ||
          found->table.positions != x1Cos->table.positions ||
          found->table.lastDim() != x1Cos->table.lastDim())
        return failure();
    Value cos = x1Cos->table.value, sin = x2Sin->table.value;
    if (x2Cos->table.value != cos || x1Sin->table.value != sin)
      return failure();
    replaceByRotary(concat, x1Cos->half.whole, cos, sin, x1Cos->table.positions, rewriter);
    return success();
  }
};

} // namespace

void addRotaryPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseRotateHalf, RaiseHalves>(patterns.getContext());
}

} // namespace tbc::raise

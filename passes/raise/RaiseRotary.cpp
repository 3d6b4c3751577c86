//===- RaiseRotary.cpp - Rotary positions ----------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Activation.h"
#include "ir/Elementwise.h"
#include "ir/Gradient.h"
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

/// Whether each element of the result is a function of the same element of each operand.
bool isElementwise(Operation *op) {
  return !isRandom(op) && (op->hasTrait<OpTrait::SameOperandsAndResultShape>() ||
                           op->hasTrait<OpTrait::SameOperandsAndResultType>());
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
  return op->getNumOperands() > 0 && isElementwise(op) &&
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

//===- pairs ---------------------------------------------------------------===//

/// Returns the operand of a reshape or broadcast that adds a last dim of size 1, else null.
Value withoutLastDim(Value value) {
  auto type = tensorType(value);
  if (type.getRank() < 2 || type.getShape().back() != 1)
    return {};
  Value input;
  if (auto reshape = definedBy<ReshapeOp>(value))
    input = reshape.getInput();
  else if (auto broadcast = definedBy<BroadcastOp>(value))
    input = broadcast.getInput();
  return input && tensorType(input).getShape() == type.getShape().drop_back() ? input : Value();
}

/// Returns the operand of a reshape that removes a last dim of size 1, else null.
Value withLastDim(ReshapeOp squeezed) {
  auto type = tensorType(squeezed.getInput());
  bool isSqueeze = type.getRank() > 0 && type.getShape().back() == 1 &&
                   type.getShape().drop_back() == squeezed.getType().getShape();
  return isSqueeze ? squeezed.getInput() : Value();
}

/// Whether a tensor of shape `pairs` is one of shape `whole` with the last dim [d] as [d / 2, 2].
bool arePairsOf(ArrayRef<int64_t> pairs, ArrayRef<int64_t> whole) {
  return pairs.size() == whole.size() + 1 && pairs.back() == 2 &&
         whole.back() == 2 * pairs.drop_back().back() && pairs.drop_back(2) == whole.drop_back();
}

/// Returns the even and the odd elements if `value` is [.., d], made of pairs.
std::optional<std::pair<Value, Value>> matchPairs(Value value) {
  auto reshape = definedBy<ReshapeOp>(value);
  auto concat = reshape ? definedBy<ConcatOp>(reshape.getInput()) : ConcatOp();
  if (!concat || concat.getInputs().size() != 2 ||
      int64_t(concat.getDim()) != concat.getType().getRank() - 1 ||
      !arePairsOf(concat.getType().getShape(), reshape.getType().getShape()))
    return std::nullopt;
  Value even = withoutLastDim(concat.getInputs()[0]), odd = withoutLastDim(concat.getInputs()[1]);
  return even && odd ? std::optional(std::pair(even, odd)) : std::nullopt;
}

/// Returns the even elements of the last dim of a table whose neighbours are known to be equal;
/// null if they are not.
Value evenOfEqualPairs(OpBuilder &builder, Value table) {
  auto type = tensorType(table);
  if (auto pairs = matchPairs(table))
    return pairs->first == pairs->second ? pairs->first : Value();
  SmallVector<int64_t> shape(type.getShape());
  if (shape.back() % 2 != 0)
    return {};
  shape.back() /= 2;
  auto half = RankedTensorType::get(shape, type.getElementType());
  if (auto constant = definedBy<ConstantOp>(table)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!dense)
      return {};
    SmallVector<Attribute> all(dense.getValues<Attribute>()), even;
    for (size_t i = 0; i < all.size(); i += 2) {
      if (all[i] != all[i + 1])
        return {};
      even.push_back(all[i]);
    }
    return builder.create<ConstantOp>(table.getLoc(), half, DenseElementsAttr::get(half, even));
  }
  auto reshape = definedBy<ReshapeOp>(table);
  auto repeated = reshape ? definedBy<BroadcastOp>(reshape.getInput()) : BroadcastOp();
  if (!repeated || !arePairsOf(repeated.getType().getShape(), type.getShape()) ||
      llvm::is_contained(repeated.getDims(), repeated.getType().getRank() - 1))
    return {};
  return builder.create<BroadcastOp>(table.getLoc(), half, repeated.getInput(), repeated.getDims());
}

/// A half of the last dim, or the elements in even or odd places: these and all of them.
struct Half {
  Value whole;
  bool isSecond = false;
  bool isInterleaved = false;
};

/// Matches the elements in even or odd places: one of each pair of [.., d / 2, 2].
std::optional<Half> matchPlaces(ReshapeOp squeezed) {
  Value element = withLastDim(squeezed);
  auto slice = element ? definedBy<SliceOp>(element) : SliceOp();
  auto split = slice ? definedBy<ReshapeOp>(slice.getInput()) : ReshapeOp();
  if (!split || int64_t(slice.getDim()) != slice.getType().getRank() - 1 || slice.getSize() != 1 ||
      !arePairsOf(split.getType().getShape(), tensorType(split.getInput()).getShape()))
    return std::nullopt;
  return Half{split.getInput(), slice.getOffset() == 1, /*isInterleaved=*/true};
}

std::optional<Half> matchHalf(Value value) {
  if (auto reshape = definedBy<ReshapeOp>(value))
    return matchPlaces(reshape);
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

/// The two parts of a rotated dim: its halves, or the even and odd places.
struct Parts {
  Value first, second;
  bool isInterleaved = false;
};

std::optional<Parts> matchParts(Value value) {
  if (auto pairs = matchPairs(value))
    return Parts{pairs->first, pairs->second, true};
  auto concat = definedBy<ConcatOp>(value);
  if (!concat || concat.getInputs().size() != 2 ||
      int64_t(concat.getDim()) != concat.getType().getRank() - 1)
    return std::nullopt;
  return Parts{concat.getInputs()[0], concat.getInputs()[1], false};
}

/// Returns x, as the first half of it, if `value` is [-x2, x1]: its parts swapped and the first
/// negated.
std::optional<Half> matchTurned(Value value) {
  auto parts = matchParts(value);
  auto negated = parts ? definedBy<NegOp>(parts->first) : NegOp();
  auto second = negated ? matchHalf(negated.getInput()) : std::nullopt;
  auto first = parts ? matchHalf(parts->second) : std::nullopt;
  if (!first || !second || first->whole != second->whole || first->isSecond || !second->isSecond ||
      first->isInterleaved != parts->isInterleaved || second->isInterleaved != parts->isInterleaved)
    return std::nullopt;
  return first;
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

/// Replaces `root` by rotary of all of `half`; the tables have one half of the last dim.
void replaceByRotary(Operation *root, const Half &half, Value cos, Value sin, int64_t positions,
                     PatternRewriter &rewriter) {
  Value x = half.whole;
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
  auto rotary = rewriter.create<RotaryOp>(loc, x, cos, sin, /*inverse=*/false,
                                          /*token_major=*/false, half.isInterleaved);
  takeIdentity(rotary, root);
  Value result = rotary;
  if (!isInPlace)
    result = rewriter.create<TransposeOp>(loc, result, inverse);
  rewriter.replaceOp(root, result);
}

/// Raises x * cos + [-x2, x1] * sin, with tables of two equal parts over the whole last dim.
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
      auto x = matchTurned(turned);
      Value cosOperand = x ? otherOperand(direct, x->whole) : Value();
      if (!cosOperand)
        continue;
      auto cos = matchTable(cosOperand), sin = matchTable(otherOperand(rotated, turned));
      if (!cos || !sin || cos->positions != sin->positions || cos->lastDim() != sin->lastDim() ||
          isTrained(cos->value) || isTrained(sin->value))
        continue;
      int64_t last = cos->lastDim();
      Value halfCos, halfSin;
      if (x->isInterleaved) {
        halfCos = evenOfEqualPairs(rewriter, cos->value);
        halfSin = evenOfEqualPairs(rewriter, sin->value);
      } else if (hasEqualHalves(cos->value, last) && hasEqualHalves(sin->value, last)) {
        halfCos = firstHalf(rewriter, cos->value, last);
        halfSin = firstHalf(rewriter, sin->value, last);
      }
      if (!halfCos || !halfSin)
        continue;
      replaceByRotary(add, *x, halfCos, halfSin, cos->positions, rewriter);
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

/// Raises [x1 * cos - x2 * sin, x2 * cos + x1 * sin], joined by `Root`: halves by a concat,
/// elements in even and odd places by a reshape of pairs.
template <typename Root> struct RaiseParts : OpRewritePattern<Root> {
  using OpRewritePattern<Root>::OpRewritePattern;

  LogicalResult matchAndRewrite(Root root, PatternRewriter &rewriter) const override {
    auto parts = matchParts(root.getResult());
    auto sub = parts ? definedBy<SubOp>(parts->first) : SubOp();
    auto add = parts ? definedBy<AddOp>(parts->second) : AddOp();
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
          found->half.isInterleaved != parts->isInterleaved ||
          found->table.positions != x1Cos->table.positions ||
          found->table.lastDim() != x1Cos->table.lastDim())
        return failure();
    Value cos = x1Cos->table.value, sin = x2Sin->table.value;
    // The op has no gradient for its tables, so angles that are trained stay decomposed.
    if (x2Cos->table.value != cos || x1Sin->table.value != sin || isTrained(cos) || isTrained(sin))
      return failure();
    replaceByRotary(root, x1Cos->half, cos, sin, x1Cos->table.positions, rewriter);
    return success();
  }
};

} // namespace

void addRotaryPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseRotateHalf, RaiseParts<ConcatOp>, RaiseParts<ReshapeOp>>(patterns.getContext());
}

} // namespace tbc::raise

//===- MaskPredicate.cpp - The predicate of an attention mask --------------===//

#include "passes/raise/MaskPredicate.h"

#include "ir/Evaluate.h"
#include "passes/raise/Match.h"

#include "ir/Elementwise.h"
#include "ir/HidingNumber.h"
#include "ir/Movement.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <functional>
#include <numeric>

using namespace mlir;

namespace tbc::raise {

namespace {

//===- symbolic ------------------------------------------------------------===//

/// An integer tensor as a function of the index has the same form as a half-plane's left side.
using Affine = HalfPlane;
using HalfPlanes = SmallVector<HalfPlane>;

Affine constantAffine(int64_t numDims, int64_t offset) {
  return {SmallVector<int64_t>(numDims, 0), offset};
}

Affine combine(const Affine &a, int64_t factorA, const Affine &b, int64_t factorB) {
  Affine result = a;
  for (auto [i, coefficient] : llvm::enumerate(result.coefficients))
    coefficient = factorA * coefficient + factorB * b.coefficients[i];
  result.offset = factorA * a.offset + factorB * b.offset;
  return result;
}

/// The producer of `value`, if it only moves elements, and its map of indices: operand dim d reads
/// result dim `dims[d]` (-1: element 0) plus `offsets[d]`. Example: a slice from 3 of a vector has
/// dims [0] and offsets [3].
struct Movement {
  Value operand;
  SmallVector<int64_t> dims, offsets;
};

std::optional<Movement> movementOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() != 1)
    return std::nullopt;
  Movement movement{op->getOperand(0), {}, {}};
  int64_t numDims = tensorType(op->getOperand(0)).getRank();
  movement.dims.assign(numDims, -1);
  movement.offsets.assign(numDims, 0);
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    movement.dims.assign(broadcast.getDims().begin(), broadcast.getDims().end());
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      movement.dims[dim] = i;
  } else if (auto slice = dyn_cast<SliceOp>(op)) {
    std::iota(movement.dims.begin(), movement.dims.end(), 0);
    movement.offsets[slice.getDim()] = slice.getOffset();
  } else if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    auto isProduct = [](int64_t count) { return count > 1; };
    if (llvm::any_of(reshape.getIn(), isProduct) || llvm::any_of(reshape.getOut(), isProduct))
      return std::nullopt;
    SmallVector<int64_t> kept;
    for (auto [dim, count] : llvm::enumerate(reshape.getOut()))
      if (count == 1)
        kept.push_back(dim);
    size_t next = 0;
    for (auto [dim, count] : llvm::enumerate(reshape.getIn()))
      if (count == 1)
        movement.dims[dim] = kept[next++];
  } else {
    return std::nullopt;
  }
  return movement;
}

/// Converts a function of the operand's index to one of the result's index.
Affine throughMovement(const Affine &inner, const Movement &movement, int64_t numDims) {
  Affine result = constantAffine(numDims, inner.offset);
  for (auto [d, coefficient] : llvm::enumerate(inner.coefficients)) {
    result.offset += coefficient * movement.offsets[d];
    if (movement.dims[d] >= 0)
      result.coefficients[movement.dims[d]] += coefficient;
  }
  return result;
}

/// Reads a listed vector of equally spaced integers, e.g. [4, 6, 8] as 4 + 2 i.
std::optional<Affine> affineOfVector(ConstantOp constant) {
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!dense || !isa<IntegerType>(dense.getElementType()) || constant.getType().getRank() != 1)
    return std::nullopt;
  SmallVector<int64_t> elements;
  for (APInt element : dense.getValues<APInt>())
    elements.push_back(element.getSExtValue());
  int64_t step = elements.size() > 1 ? elements[1] - elements[0] : 0;
  for (size_t i = 1; i < elements.size(); ++i)
    if (elements[i] - elements[i - 1] != step)
      return std::nullopt;
  return Affine{{step}, elements[0]};
}

/// The least and greatest values over a tensor of `shape`.
std::pair<int64_t, int64_t> rangeOf(const Affine &f, ArrayRef<int64_t> shape) {
  int64_t least = f.offset, greatest = f.offset;
  for (auto [coefficient, size] : llvm::zip_equal(f.coefficients, shape)) {
    int64_t end = coefficient * (size - 1);
    least += std::min<int64_t>(end, 0);
    greatest += std::max<int64_t>(end, 0);
  }
  return {least, greatest};
}

/// Drops the half-planes that always hold. If one never holds, returns it alone.
HalfPlanes simplify(const HalfPlanes &planes, ArrayRef<int64_t> shape) {
  HalfPlanes result;
  for (const HalfPlane &plane : planes) {
    auto [least, greatest] = rangeOf(plane, shape);
    if (greatest < 0)
      return {constantAffine(shape.size(), -1)};
    if (least < 0)
      result.push_back(plane);
  }
  return result;
}

/// Returns the negation of `planes`; nullopt if it is no conjunction.
std::optional<HalfPlanes> negate(const HalfPlanes &given, ArrayRef<int64_t> shape) {
  HalfPlanes planes = simplify(given, shape);
  if (planes.empty())
    return HalfPlanes{constantAffine(shape.size(), -1)};
  if (planes.size() > 1)
    return std::nullopt;
  Affine opposite = combine(planes[0], -1, planes[0], 0);
  opposite.offset -= 1;
  return simplify({opposite}, shape);
}

/// Returns the half-planes in which a - b compares to 0 by `predicate`.
std::optional<HalfPlanes> compare(const Affine &a, const Affine &b, StringRef predicate,
                                  ArrayRef<int64_t> shape) {
  Affine greaterEqual = combine(a, 1, b, -1), lessEqual = combine(a, -1, b, 1);
  Affine greater = greaterEqual, less = lessEqual;
  greater.offset -= 1;
  less.offset -= 1;
  if (predicate == "ge")
    return HalfPlanes{greaterEqual};
  if (predicate == "le")
    return HalfPlanes{lessEqual};
  if (predicate == "gt")
    return HalfPlanes{greater};
  if (predicate == "lt")
    return HalfPlanes{less};
  if (predicate == "eq")
    return HalfPlanes{greaterEqual, lessEqual};
  return negate({greaterEqual, lessEqual}, shape);
}

/// A tensor of two numbers: one if the half-planes hold, the other if not.
struct TwoValued {
  HalfPlanes planes;
  double onTrue = 0, onFalse = 0;

  /// The same in tensors of type `element`, if it can hold both.
  std::optional<TwoValued> in(Type element) const {
    auto first = inType(onTrue, element), second = inType(onFalse, element);
    return first && second ? std::optional(TwoValued{planes, *first, *second}) : std::nullopt;
  }
};

/// Reads values of indices and numbers. A value that is an operand twice is read twice, so the
/// number of steps has a limit.
class SymbolicReader {
public:
  /// `value` as an affine function of its index.
  std::optional<Affine> affineOf(Value value);
  std::optional<TwoValued> twoValuedOf(Value value);
  /// Reads `value`, a boolean tensor, as a conjunction of half-planes.
  std::optional<HalfPlanes> halfPlanesOf(Value value);

private:
  std::optional<HalfPlanes> compareWithNumber(CompareOp op);
  std::optional<HalfPlanes> selected(SelectOp op);
  bool isTooLong() { return ++steps > kMaxSteps; }

  static constexpr int kMaxSteps = 4096;
  int steps = 0;
};

std::optional<Affine> SymbolicReader::affineOf(Value value) {
  if (isTooLong())
    return std::nullopt;
  int64_t numDims = tensorType(value).getRank();
  if (auto number = splatNumber(value)) {
    if (double(int64_t(*number)) != *number)
      return std::nullopt;
    return constantAffine(numDims, int64_t(*number));
  }
  if (auto movement = movementOf(value)) {
    auto inner = affineOf(movement->operand);
    return inner ? std::optional(throughMovement(*inner, *movement, numDims)) : std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto constant = dyn_cast<ConstantOp>(op))
    return affineOfVector(constant);
  if (auto iota = dyn_cast<IotaOp>(op)) {
    Affine result = constantAffine(numDims, 0);
    result.coefficients[iota.getDim()] = 1;
    return result;
  }
  if (!isa<CastOp, NegOp, AddOp, SubOp, MulOp>(op))
    return std::nullopt;
  // A boolean is no number, nor is the number that is cast to it.
  if (tensorType(op->getOperand(0)).getElementType().isInteger(1) ||
      tensorType(value).getElementType().isInteger(1))
    return std::nullopt;
  auto a = affineOf(op->getOperand(0));
  if (!a || isa<CastOp>(op))
    return a;
  if (isa<NegOp>(op))
    return combine(*a, -1, *a, 0);
  auto b = affineOf(op->getOperand(1));
  if (!b)
    return std::nullopt;
  if (isa<AddOp, SubOp>(op))
    return combine(*a, 1, *b, isa<AddOp>(op) ? 1 : -1);
  auto isConstant = [](const Affine &f) {
    return llvm::all_of(f.coefficients, [](int64_t c) { return c == 0; });
  };
  if (isConstant(*a))
    return combine(*b, a->offset, *b, 0);
  return isConstant(*b) ? std::optional(combine(*a, b->offset, *a, 0)) : std::nullopt;
}

std::optional<TwoValued> SymbolicReader::twoValuedOf(Value value) {
  if (isTooLong())
    return std::nullopt;
  int64_t numDims = tensorType(value).getRank();
  if (auto number = splatNumber(value))
    return TwoValued{{}, *number, *number};
  if (auto movement = movementOf(value)) {
    auto inner = twoValuedOf(movement->operand);
    if (inner)
      for (HalfPlane &plane : inner->planes)
        plane = throughMovement(plane, *movement, numDims);
    return inner;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto select = dyn_cast<SelectOp>(op)) {
    auto planes = halfPlanesOf(select.getPred());
    auto onTrue = splatNumber(select.getOnTrue()), onFalse = splatNumber(select.getOnFalse());
    if (!planes || !onTrue || !onFalse)
      return std::nullopt;
    return TwoValued{*planes, *onTrue, *onFalse};
  }
  if (auto cast = dyn_cast<CastOp>(op)) {
    if (!tensorType(cast.getInput()).getElementType().isInteger(1)) {
      auto number = twoValuedOf(cast.getInput());
      return number ? number->in(tensorType(value).getElementType()) : std::nullopt;
    }
    auto planes = halfPlanesOf(cast.getInput());
    return planes ? std::optional(TwoValued{*planes, 1, 0}) : std::nullopt;
  }
  if (!isa<AddOp, SubOp, MulOp, NegOp>(op))
    return std::nullopt;
  auto a = twoValuedOf(op->getOperand(0));
  auto b = op->getNumOperands() > 1 ? twoValuedOf(op->getOperand(1)) : TwoValued{};
  if (!a || !b)
    return std::nullopt;
  bool aIsNumber = a->onTrue == a->onFalse, bIsNumber = b->onTrue == b->onFalse;
  if (!aIsNumber && !bIsNumber)
    return std::nullopt;
  auto apply = [&](double x, double y) {
    return isa<AddOp>(op) ? x + y : isa<SubOp>(op) ? x - y : isa<MulOp>(op) ? x * y : -x;
  };
  TwoValued result{aIsNumber ? b->planes : a->planes, apply(a->onTrue, b->onTrue),
                   apply(a->onFalse, b->onFalse)};
  return result.in(tensorType(value).getElementType());
}

/// Reads a comparison of a two-valued tensor with a number. Example: `select(causal, 1, 0) == 0`,
/// in which TorchScript writes a causal mask, is the negation of `causal`.
std::optional<HalfPlanes> SymbolicReader::compareWithNumber(CompareOp op) {
  auto a = twoValuedOf(op.getLhs()), b = twoValuedOf(op.getRhs());
  if (!a || !b || (a->onTrue != a->onFalse && b->onTrue != b->onFalse))
    return std::nullopt;
  auto holds = [&](double x, double y) {
    StringRef predicate = op.getPredicate();
    bool isStrict = predicate == "lt" || predicate == "gt";
    if (x == y)
      return !isStrict && predicate != "ne";
    return predicate == "ne" || (x < y ? predicate.starts_with("l") : predicate.starts_with("g"));
  };
  auto shape = tensorType(op.getLhs()).getShape();
  bool onTrue = holds(a->onTrue, b->onTrue), onFalse = holds(a->onFalse, b->onFalse);
  if (onTrue == onFalse)
    return onTrue ? HalfPlanes{} : HalfPlanes{constantAffine(shape.size(), -1)};
  const HalfPlanes &planes = a->onTrue != a->onFalse ? a->planes : b->planes;
  return onTrue ? std::optional(planes) : negate(planes, shape);
}

/// Reads a choice between a boolean tensor and false, as in `ones(n, n, dtype=bool).tril()`.
std::optional<HalfPlanes> SymbolicReader::selected(SelectOp op) {
  const bool isFirst = splatNumber(op.getOnFalse()) == 0.0;
  if (!isFirst && splatNumber(op.getOnTrue()) != 0.0)
    return std::nullopt;
  auto shape = tensorType(op.getResult()).getShape();
  auto chosen = halfPlanesOf(op.getPred());
  if (chosen && !isFirst)
    chosen = negate(*chosen, shape);
  auto rest = halfPlanesOf(isFirst ? op.getOnTrue() : op.getOnFalse());
  if (!chosen || !rest)
    return std::nullopt;
  chosen->append(*rest);
  return simplify(*chosen, shape);
}

std::optional<HalfPlanes> SymbolicReader::halfPlanesOf(Value value) {
  if (isTooLong())
    return std::nullopt;
  auto shape = tensorType(value).getShape();
  if (auto number = splatNumber(value))
    return *number != 0 ? HalfPlanes{} : HalfPlanes{constantAffine(shape.size(), -1)};
  if (auto movement = movementOf(value)) {
    auto inner = halfPlanesOf(movement->operand);
    if (inner)
      for (HalfPlane &plane : *inner)
        plane = throughMovement(plane, *movement, shape.size());
    return inner;
  }
  Operation *op = value.getDefiningOp();
  if (auto compareOp = dyn_cast_or_null<CompareOp>(op)) {
    auto a = affineOf(compareOp.getLhs()), b = affineOf(compareOp.getRhs());
    return a && b ? compare(*a, *b, compareOp.getPredicate(), shape) : compareWithNumber(compareOp);
  }
  if (auto cast = dyn_cast_or_null<CastOp>(op)) {
    auto number = twoValuedOf(cast.getInput());
    if (!number || (number->onTrue != 0) == (number->onFalse != 0))
      return std::nullopt;
    return number->onTrue != 0 ? std::optional(number->planes) : negate(number->planes, shape);
  }
  if (auto select = dyn_cast_or_null<SelectOp>(op))
    return selected(select);
  if (!isa_and_nonnull<NotOp, AndOp, OrOp>(op))
    return std::nullopt;
  auto a = halfPlanesOf(op->getOperand(0));
  if (isa<NotOp>(op))
    return a ? negate(*a, shape) : std::nullopt;
  auto b = halfPlanesOf(op->getOperand(1));
  if (!a || !b)
    return std::nullopt;
  if (isa<AndOp>(op)) {
    a->append(*b);
    return simplify(*a, shape);
  }
  // a or b = not (not a and not b)
  auto notA = negate(*a, shape), notB = negate(*b, shape);
  if (!notA || !notB)
    return std::nullopt;
  notA->append(*notB);
  return negate(*notA, shape);
}

//===- evaluated -----------------------------------------------------------===//

/// No tensor larger than this is evaluated.
constexpr int64_t kMaxElements = int64_t(1) << 24;

/// The elements of `value`, if it is made of constants and indices alone.
class Evaluator {
public:
  std::optional<kernels::Tensor> operator()(Value value) {
    if (auto it = tensors.find(value); it != tensors.end())
      return it->second;
    Operation *op = value.getDefiningOp();
    if (!op || isRandom(op) || tensorType(value).getNumElements() > kMaxElements)
      return std::nullopt;
    SmallVector<kernels::Tensor> operands;
    for (Value operand : op->getOperands()) {
      auto tensor = (*this)(operand);
      if (!tensor)
        return std::nullopt;
      operands.push_back(*tensor);
    }
    // An op that cannot be evaluated is no error here: its value stays unknown.
    ScopedDiagnosticHandler silent(op->getContext(), [](Diagnostic &) { return success(); });
    auto results = evaluateOp(op, operands, kernels::Arith::F64);
    if (failed(results))
      return std::nullopt;
    for (auto [result, tensor] : llvm::zip_equal(op->getResults(), *results))
      tensors[result] = tensor;
    return tensors[value];
  }

private:
  llvm::DenseMap<Value, kernels::Tensor> tensors;
};

} // namespace

std::optional<Predicate> predicateOf(Value value) {
  if (auto planes = SymbolicReader().halfPlanesOf(value))
    return Predicate{simplify(*planes, tensorType(value).getShape()), {}};
  auto tensor = Evaluator()(value);
  if (!tensor || !tensor->holds<int64_t>())
    return std::nullopt;
  Predicate predicate;
  for (int64_t element : tensor->data<int64_t>())
    predicate.table.push_back(element != 0);
  return predicate;
}

std::optional<Predicate> biasPredicateOf(Value value) {
  auto shape = tensorType(value).getShape();
  if (auto number = SymbolicReader().twoValuedOf(value)) {
    std::optional<HalfPlanes> planes;
    if (number->onTrue == 0 && (number->onFalse == 0 || hidesScores(number->onFalse)))
      planes = number->onFalse == 0 ? HalfPlanes{} : number->planes;
    else if (number->onFalse == 0 && hidesScores(number->onTrue))
      planes = negate(number->planes, shape);
    if (planes)
      return Predicate{simplify(*planes, shape), {}, number->onTrue + number->onFalse};
  }
  auto tensor = Evaluator()(value);
  if (!tensor || !tensor->holds<double>())
    return std::nullopt;
  Predicate predicate;
  for (double element : tensor->data<double>()) {
    if (element != 0 && !hidesScores(element))
      return std::nullopt;
    predicate.hasOtherNumbers |=
        element != 0 && predicate.hiddenNumber != 0 && element != predicate.hiddenNumber;
    predicate.hiddenNumber = std::min(predicate.hiddenNumber, element);
    predicate.table.push_back(element == 0);
  }
  return predicate;
}

std::optional<Predicate> onesPredicateOf(Value value) {
  auto shape = tensorType(value).getShape();
  if (auto number = SymbolicReader().twoValuedOf(value);
      number && number->onTrue + number->onFalse == 1 && number->onTrue * number->onFalse == 0)
    if (auto planes = number->onTrue == 1 ? number->planes : negate(number->planes, shape))
      return Predicate{simplify(*planes, shape), {}};
  auto tensor = Evaluator()(value);
  if (!tensor || !tensor->holds<double>())
    return std::nullopt;
  Predicate predicate;
  for (double element : tensor->data<double>()) {
    if (element != 0 && element != 1)
      return std::nullopt;
    predicate.table.push_back(element == 1);
  }
  return predicate;
}

/// Floor of a / b for b > 0.
static int64_t floorDivide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

namespace {

/// Narrows `window` to offsets of keys from `least` to `greatest`. Returns false if a query would
/// lose its own position.
bool narrow(MaskWindow &window, std::optional<int64_t> least, std::optional<int64_t> greatest) {
  if ((least && *least > 0) || (greatest && *greatest < 0))
    return false;
  if (least)
    window.left = window.left < 0 ? -*least : std::min(window.left, -*least);
  if (greatest)
    window.right = window.right < 0 ? *greatest : std::min(window.right, *greatest);
  return true;
}

/// Narrows `window` to the pairs allowed by `table`. Returns false if the result is no window.
bool narrowToTable(MaskWindow &window, const std::vector<bool> &table, int64_t numQueries,
                   int64_t numKeys) {
  int64_t shift = numKeys - numQueries;
  std::optional<int64_t> least, greatest; // of the allowed pairs
  for (int64_t i = 0; i < numQueries; ++i)
    for (int64_t j = 0; j < numKeys; ++j)
      if (table[i * numKeys + j]) {
        int64_t ahead = j - i - shift;
        least = least ? std::min(*least, ahead) : ahead;
        greatest = greatest ? std::max(*greatest, ahead) : ahead;
      }
  if (!least)
    return false;
  for (int64_t i = 0; i < numQueries; ++i)
    for (int64_t j = 0; j < numKeys; ++j) {
      int64_t ahead = j - i - shift;
      if (table[i * numKeys + j] != (ahead >= *least && ahead <= *greatest))
        return false;
    }
  if (*least <= 1 - numKeys)
    least.reset();
  if (*greatest >= numQueries - 1)
    greatest.reset();
  return narrow(window, least, greatest);
}

} // namespace

std::optional<MaskWindow> windowOf(const PairPredicate &predicate, int64_t numQueries,
                                   int64_t numKeys) {
  MaskWindow window;
  int64_t shift = numKeys - numQueries;
  for (const PairPredicate::HalfPlane &plane : predicate.halfPlanes) {
    auto [least, greatest] =
        rangeOf({{plane.query, plane.key}, plane.offset}, {numQueries, numKeys});
    if (least >= 0)
      continue;
    if (plane.query == 0 || plane.key != -plane.query)
      return std::nullopt;
    // c (i - j) + offset >= 0 bounds j - i from above; its negation from below.
    int64_t bound = floorDivide(plane.offset, std::abs(plane.query));
    bool isNarrowed = plane.query > 0 ? narrow(window, std::nullopt, bound - shift)
                                      : narrow(window, -bound - shift, std::nullopt);
    if (!isNarrowed)
      return std::nullopt;
  }
  for (const std::vector<bool> &table : predicate.tables)
    if (!narrowToTable(window, table, numQueries, numKeys))
      return std::nullopt;
  if (numKeys < numQueries && (window.left >= 0 || window.right >= 0))
    return std::nullopt;
  return window;
}

} // namespace tbc::raise

//===- Match.cpp - Matchers of the raising patterns ------------------------===//

#include "passes/raise/Match.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

//===- numbers -------------------------------------------------------------===//

std::optional<double> splatNumber(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (isa<BroadcastOp, ReshapeOp, TransposeOp>(op))
    return splatNumber(op->getOperand(0));
  if (auto cast = dyn_cast<CastOp>(op)) {
    if (!cast.isAdditive()) // not between floats
      return std::nullopt;
    auto number = splatNumber(cast.getInput());
    return number ? inType(*number, tensorType(value).getElementType()) : std::nullopt;
  }
  auto constant = dyn_cast<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || !dense.isSplat())
    return std::nullopt;
  if (isa<FloatType>(dense.getElementType())) {
    APFloat number = dense.getSplatValue<APFloat>();
    bool losesInfo = false;
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
    return number.convertToDouble();
  }
  bool isUnsigned =
      dense.getElementType().isUnsignedInteger() || dense.getElementType().isInteger(1);
  APInt number = dense.getSplatValue<APInt>();
  return isUnsigned ? double(number.getZExtValue()) : double(number.getSExtValue());
}

std::optional<double> inType(double number, Type element) {
  if (auto type = dyn_cast<FloatType>(element)) {
    APFloat rounded(number);
    bool losesInfo = false;
    rounded.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
    rounded.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
    return rounded.convertToDouble();
  }
  if (element.isInteger(1))
    return number != 0;
  double limit = std::ldexp(1.0, int(element.getIntOrFloatBitWidth()) - 1);
  bool fits = std::trunc(number) >= (element.isUnsignedInteger() ? 0 : -limit) && number < limit;
  return fits ? std::optional(std::trunc(number)) : std::nullopt;
}

double constantTolerance(Value value) {
  auto type = dyn_cast<FloatType>(tensorType(value).getElementType());
  unsigned precision = type ? type.getFPMantissaWidth() : 24; // with the implicit bit
  return precision >= 24 ? 1e-6 : 4 * std::ldexp(1.0, -int(precision) - 1);
}

bool isClose(double actual, double expected, double tolerance) {
  return std::abs(actual - expected) <= tolerance * std::abs(expected);
}

//===- polynomials and products --------------------------------------------===//

static std::optional<Polynomial> multiply(const Polynomial &a, const Polynomial &b) {
  Polynomial result;
  for (auto [i, ci] : a)
    for (auto [j, cj] : b) {
      if (i + j > 8)
        return std::nullopt;
      result[i + j] += ci * cj;
    }
  return result;
}

static Polynomial plus(Polynomial a, const Polynomial &b, double sign) {
  for (auto [degree, coefficient] : b)
    a[degree] += sign * coefficient;
  return a;
}

/// Limit for the steps of a match; patterns take a handful of ops. A value that is an operand twice
/// is walked twice, so a long chain of these would take exponential time.
static constexpr int kMaxSteps = 256;

static std::optional<Polynomial> polynomialIn(Value value, Value x, int &steps) {
  if (++steps > kMaxSteps)
    return std::nullopt;
  if (value == x)
    return Polynomial{{1, 1.0}};
  if (auto number = splatNumber(value))
    return Polynomial{{0, *number}};
  Operation *op = value.getDefiningOp();
  if (!op || !isa<AddOp, SubOp, MulOp, DivOp, PowOp, NegOp>(op))
    return std::nullopt;
  auto a = polynomialIn(op->getOperand(0), x, steps);
  if (!a)
    return std::nullopt;
  if (isa<NegOp>(op))
    return plus({}, *a, -1);
  if (isa<DivOp, PowOp>(op)) {
    auto number = splatNumber(op->getOperand(1));
    if (!number)
      return std::nullopt;
    if (isa<DivOp>(op))
      return multiply(*a, {{0, 1 / *number}});
    std::optional<Polynomial> power = Polynomial{{0, 1.0}};
    if (*number != std::floor(*number) || *number < 0 || *number > 8)
      return std::nullopt;
    for (int64_t i = 0; power && i < int64_t(*number); ++i)
      power = multiply(*power, *a);
    return power;
  }
  auto b = polynomialIn(op->getOperand(1), x, steps);
  if (!b)
    return std::nullopt;
  if (isa<MulOp>(op))
    return multiply(*a, *b);
  return plus(*a, *b, isa<AddOp>(op) ? 1 : -1);
}

std::optional<Polynomial> polynomialIn(Value value, Value x) {
  int steps = 0;
  return polynomialIn(value, x, steps);
}

bool isClose(const Polynomial &actual, const Polynomial &expected, double tolerance) {
  Polynomial all = plus(expected, actual, 0);
  return llvm::all_of(all, [&](auto entry) {
    auto in = [&](const Polynomial &p) {
      auto it = p.find(entry.first);
      return it == p.end() ? 0.0 : it->second;
    };
    return isClose(in(actual), in(expected), tolerance);
  });
}

/// Beyond the limit the rest stays one factor.
static void flattenInto(Product &product, Value value, Value stop, bool isTop, int &steps) {
  if ((value != stop || isTop) && ++steps <= kMaxSteps) {
    if (auto number = splatNumber(value)) {
      product.number *= *number;
      return;
    }
    if (auto mul = definedBy<MulOp>(value)) {
      flattenInto(product, mul.getLhs(), stop, false, steps);
      flattenInto(product, mul.getRhs(), stop, false, steps);
      return;
    }
    if (auto div = definedBy<DivOp>(value))
      if (auto number = splatNumber(div.getRhs())) {
        product.number /= *number;
        flattenInto(product, div.getLhs(), stop, false, steps);
        return;
      }
  }
  product.factors.push_back(value);
}

Product flattenProduct(Value value, Value stop) {
  Product product;
  int steps = 0;
  flattenInto(product, value, stop, true, steps);
  return product;
}

//===- spreads -------------------------------------------------------------===//

Spread Spread::of(Value value) {
  Spread spread{value, {}};
  for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
    spread.dims.push_back(dim);
  return spread;
}

/// Whether a reshape only adds and removes dims of size 1.
static bool changesUnitDimsOnly(ReshapeOp reshape) {
  auto noProducts = [](ArrayRef<int64_t> counts) {
    return llvm::all_of(counts, [](int64_t count) { return count <= 1; });
  };
  return noProducts(reshape.getIn()) && noProducts(reshape.getOut());
}

Spread &Spread::strip() {
  while (Operation *op = value.getDefiningOp()) {
    SmallVector<int64_t> inner;
    if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
      for (int64_t dim : broadcast.getDims())
        inner.push_back(dims[dim]);
    } else if (auto reshape = dyn_cast<ReshapeOp>(op); reshape && changesUnitDimsOnly(reshape)) {
      // Dims with a factor correspond in order; a removed dim of size 1 is broadcast along no dim.
      SmallVector<int64_t> kept;
      for (auto [dim, count] : llvm::enumerate(reshape.getOut()))
        if (count == 1)
          kept.push_back(dims[dim]);
      size_t next = 0;
      for (int64_t count : reshape.getIn())
        inner.push_back(count == 1 ? kept[next++] : -1);
    } else {
      break;
    }
    value = op->getOperand(0);
    dims = inner;
  }
  return *this;
}

Spread Spread::operand(Value operand) const { return {operand, dims}; }

/// Returns true if all dims but those of size 1 stay in their order.
static bool movesUnitDimsOnly(TransposeOp transpose) {
  int64_t last = -1;
  for (int64_t dim : transpose.getPermutation()) {
    if (tensorType(transpose.getInput()).getDimSize(dim) == 1)
      continue;
    if (dim < last)
      return false;
    last = dim;
  }
  return true;
}

Value skipUnitDims(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    auto reshape = dyn_cast<ReshapeOp>(op);
    auto transpose = dyn_cast<TransposeOp>(op);
    auto broadcast = dyn_cast<BroadcastOp>(op);
    bool isView =
        (reshape && changesUnitDimsOnly(reshape)) || (transpose && movesUnitDimsOnly(transpose)) ||
        (broadcast && llvm::is_sorted(broadcast.getDims()) &&
         tensorType(value).getNumElements() == tensorType(broadcast.getInput()).getNumElements());
    if (!isView)
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Returns the input of a sum over its last dim, divided by the size of that dim.
Value meanOverLastDim(Spread spread, int64_t numDims) {
  double factor = 1;
  while (true) {
    spread.strip();
    if (auto div = definedBy<DivOp>(spread.value)) {
      auto number = splatNumber(div.getRhs());
      if (!number)
        return {};
      factor /= *number;
      spread = spread.operand(div.getLhs());
    } else if (auto mul = definedBy<MulOp>(spread.value)) {
      auto left = splatNumber(mul.getLhs()), right = splatNumber(mul.getRhs());
      if (!left && !right)
        return {};
      factor *= left ? *left : *right;
      spread = spread.operand(left ? mul.getRhs() : mul.getLhs());
    } else {
      break;
    }
  }
  auto sum = definedBy<ReduceSumOp>(spread.value);
  if (!sum)
    return {};
  auto input = tensorType(sum.getInput());
  if (sum.getDims() != ArrayRef<int64_t>{numDims - 1} || input.getRank() != numDims ||
      !isClose(factor, 1.0 / double(input.getShape().back())))
    return {};
  for (auto [i, dim] : llvm::enumerate(spread.dims))
    if (dim != int64_t(i))
      return {};
  return sum.getInput();
}

Value squareRoot(Value value) {
  if (auto mul = definedBy<MulOp>(value); mul && mul.getLhs() == mul.getRhs())
    return mul.getLhs();
  if (auto pow = definedBy<PowOp>(value); pow && splatNumber(pow.getRhs()) == 2.0)
    return pow.getLhs();
  return {};
}

Value vectorOfLastDim(Value value) {
  int64_t numDims = tensorType(value).getRank();
  Spread spread = Spread::of(value).strip();
  if (tensorType(spread.value).getRank() == 1 && spread.dims == ArrayRef<int64_t>{numDims - 1})
    return spread.value;
  return {};
}

std::optional<RootOfSum> root(Spread spread) {
  spread.strip();
  Value sum;
  if (auto sqrt = definedBy<SqrtOp>(spread.value))
    sum = sqrt.getInput();
  else if (auto pow = definedBy<PowOp>(spread.value); pow && splatNumber(pow.getRhs()) == 0.5)
    sum = pow.getLhs();
  if (!sum)
    return std::nullopt;
  spread = spread.operand(sum);
  spread.strip();
  auto add = definedBy<AddOp>(spread.value);
  if (!add)
    return std::nullopt;
  auto left = splatNumber(add.getLhs()), right = splatNumber(add.getRhs());
  if (!left && !right)
    return std::nullopt;
  return RootOfSum{spread.operand(left ? add.getRhs() : add.getLhs()), left ? *left : *right};
}

std::optional<RootOfSum> reciprocalRoot(Spread spread) {
  spread.strip();
  Operation *op = spread.value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (isa<ReciprocalOp>(op))
    return root(spread.operand(op->getOperand(0)));
  if (isa<DivOp>(op) && splatNumber(op->getOperand(0)) == 1.0)
    return root(spread.operand(op->getOperand(1)));
  bool isRsqrt = isa<RsqrtOp>(op) || (isa<PowOp>(op) && splatNumber(op->getOperand(1)) == -0.5);
  if (!isRsqrt)
    return std::nullopt;
  spread = spread.operand(op->getOperand(0));
  spread.strip();
  auto add = definedBy<AddOp>(spread.value);
  if (!add)
    return std::nullopt;
  auto left = splatNumber(add.getLhs()), right = splatNumber(add.getRhs());
  if (!left && !right)
    return std::nullopt;
  return RootOfSum{spread.operand(left ? add.getRhs() : add.getLhs()), left ? *left : *right};
}

void takeIdentity(Operation *made, Operation *root) {
  made->setLoc(root->getLoc());
  made->setDiscardableAttrs(root->getDiscardableAttrDictionary());
}

bool isRandom(Operation *op) { return isa<DropoutOpInterface>(op); }

bool isParameter(Value value) {
  while (isa_and_nonnull<TransposeOp, ReshapeOp, CastOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return isa<BlockArgument>(value);
}

bool readsProduct(Value value, int depth) {
  Operation *op = value.getDefiningOp();
  if (!op || depth > 6)
    return false;
  // Of activations: a router's softmax reads a matmul with a parameter.
  if (auto einsum = dyn_cast<EinsumOp>(op))
    return !isParameter(einsum.getLhs()) && !isParameter(einsum.getRhs());
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return tensorType(operand).getNumElements() == tensorType(value).getNumElements() &&
           readsProduct(operand, depth + 1);
  });
}

} // namespace tbc::raise

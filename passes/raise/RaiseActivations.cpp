//===- RaiseActivations.cpp - gelu, silu and swiglu ------------------------===//

#include "passes/raise/Patterns.h"

#include "ir/Activation.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "passes/raise/Match.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

namespace {

/// erf or tanh of a polynomial in some x, plus one.
struct Gate {
  Value x;
  StringRef approximate;
};

/// Collects the values from which `value` is computed by arithmetic with numbers: candidates for
/// the variable of a polynomial.
void collectVariables(Value value, SmallVectorImpl<Value> &variables, unsigned depth = 0) {
  if (splatNumber(value) || llvm::is_contained(variables, value))
    return;
  variables.push_back(value);
  Operation *op = value.getDefiningOp();
  if (depth < 8 && op && isa<AddOp, SubOp, MulOp, DivOp, PowOp, NegOp>(op))
    for (Value operand : op->getOperands())
      collectVariables(operand, variables, depth + 1);
}

/// Matches a gate: 1 + erf(x / sqrt(2)) or 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
std::optional<Gate> matchGate(Value value) {
  auto add = definedBy<AddOp>(value);
  if (!add)
    return std::nullopt;
  bool oneOnLeft = splatNumber(add.getLhs()) == 1.0;
  if (!oneOnLeft && splatNumber(add.getRhs()) != 1.0)
    return std::nullopt;
  Operation *function = (oneOnLeft ? add.getRhs() : add.getLhs()).getDefiningOp();
  if (!function || !isa<ErfOp, TanhOp>(function))
    return std::nullopt;
  bool isTanh = isa<TanhOp>(function);
  double slope = isTanh ? std::sqrt(2 / M_PI) : std::sqrt(0.5);
  Polynomial expected{{1, slope}};
  if (isTanh)
    expected[3] = slope * 0.044715;
  SmallVector<Value> variables;
  collectVariables(function->getOperand(0), variables);
  for (Value x : variables)
    if (auto argument = polynomialIn(function->getOperand(0), x);
        argument && isClose(*argument, expected, constantTolerance(x)))
      return Gate{x, isTanh ? "tanh" : "none"};
  return std::nullopt;
}

/// x * 0.5 * gate(x), in any order.
struct RaiseGelu : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    std::optional<Gate> gate;
    for (Value factor : flattenProduct(mul).factors)
      if ((gate = matchGate(factor)))
        break;
    if (!gate)
      return failure();
    Product product = flattenProduct(mul, gate->x);
    if (!isClose(product.number, 0.5) || product.factors.size() != 2 ||
        !llvm::is_contained(product.factors, gate->x))
      return failure();
    auto gelu = rewriter.create<GeluOp>(mul.getLoc(), mul.getType(), gate->x, gate->approximate);
    takeIdentity(gelu, mul);
    rewriter.replaceOp(mul, gelu);
    return success();
  }
};

/// Whether `value` is 1 / (1 + exp(-x)).
bool isSigmoidOf(Value value, Value x) {
  if (auto sigmoid = definedBy<SigmoidOp>(value))
    return sigmoid.getInput() == x;
  Value sum;
  if (auto reciprocal = definedBy<ReciprocalOp>(value))
    sum = reciprocal.getInput();
  else if (auto div = definedBy<DivOp>(value); div && splatNumber(div.getLhs()) == 1.0)
    sum = div.getRhs();
  auto add = sum ? definedBy<AddOp>(sum) : AddOp();
  if (!add)
    return false;
  bool oneOnLeft = splatNumber(add.getLhs()) == 1.0;
  if (!oneOnLeft && splatNumber(add.getRhs()) != 1.0)
    return false;
  auto exp = definedBy<ExpOp>(oneOnLeft ? add.getRhs() : add.getLhs());
  auto argument = exp ? polynomialIn(exp.getInput(), x) : std::nullopt;
  return argument && isClose(*argument, {{1, -1.0}});
}

struct RaiseSilu : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    for (auto [x, gate] :
         {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
      if (!isSigmoidOf(gate, x))
        continue;
      auto silu = rewriter.create<SiluOp>(mul.getLoc(), mul.getType(), x);
      takeIdentity(silu, mul);
      rewriter.replaceOp(mul, silu);
      return success();
    }
    return failure();
  }
};

/// x / (1 + exp(-x))
struct RaiseSiluQuotient : OpRewritePattern<DivOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DivOp div, PatternRewriter &rewriter) const override {
    auto add = definedBy<AddOp>(div.getRhs());
    if (!add)
      return failure();
    bool oneOnLeft = splatNumber(add.getLhs()) == 1.0;
    auto exp = definedBy<ExpOp>(oneOnLeft ? add.getRhs() : add.getLhs());
    if (!exp || (!oneOnLeft && splatNumber(add.getRhs()) != 1.0))
      return failure();
    auto argument = polynomialIn(exp.getInput(), div.getLhs());
    if (!argument || !isClose(*argument, {{1, -1.0}}))
      return failure();
    auto silu = rewriter.create<SiluOp>(div.getLoc(), div.getType(), div.getLhs());
    takeIdentity(silu, div);
    rewriter.replaceOp(div, silu);
    return success();
  }
};

/// Raises silu(gate) * up, if silu(gate) has no other use and `up` is a separate tensor.
struct RaiseSwiglu : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    for (auto [left, up] :
         {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
      auto silu = definedBy<SiluOp>(left);
      if (!silu || !silu->hasOneUse() || definedBy<BroadcastOp>(up) || splatNumber(up))
        continue;
      auto swiglu = rewriter.create<SwigluOp>(mul.getLoc(), mul.getType(), silu.getInput(), up);
      takeIdentity(swiglu, mul);
      rewriter.replaceOp(mul, swiglu);
      return success();
    }
    return failure();
  }
};

} // namespace

void addGeluPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseGelu>(patterns.getContext());
}
void addSiluPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseSilu, RaiseSiluQuotient>(patterns.getContext());
}
void addSwigluPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseSwiglu>(patterns.getContext());
}

} // namespace tbc::raise

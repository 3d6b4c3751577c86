//===- Muon.cpp - Orthogonalized steps of hidden matrices -------------------===//

#include "passes/optimizer/Muon.h"

#include "ir/Optimizer.h"
#include "ir/Roles.h"
#include "passes/autodiff/FrozenParameters.h"

#include "llvm/ADT/DenseSet.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace tbc {

/// Whether the op multiplies matrices: also those of routed experts.
static bool isMatmul(Operation *op) {
  auto cost = dyn_cast<CostOpInterface>(op);
  return cost && (cost.getKernelClass() == KernelClass::Matmul ||
                  cost.getKernelClass() == KernelClass::GroupedMatmul);
}

/// Whether a loop of `dim` runs through a dim of `tensor`.
static bool shares(const FactorRule::Dim &dim, ArrayRef<FactorRule::Dim> tensor) {
  return llvm::any_of(dim, [&](const FactorRule::Product &product) {
    return llvm::any_of(product, [&](unsigned loop) {
      return llvm::any_of(tensor, [&](const FactorRule::Dim &other) {
        return llvm::any_of(
            other, [&](const FactorRule::Product &p) { return llvm::is_contained(p, loop); });
      });
    });
  });
}

/// Whether dim 0 of operand `number` numbers matrices: it is the loop over experts, or one of the
/// other operand and of the result.
static bool isStack(Operation *op, const FactorRule &rule, unsigned number, unsigned other) {
  const FactorRule::Dim &dim = rule.operands[number].front();
  if (auto expert = dyn_cast<ExpertOpInterface>(op))
    return dim == FactorRule::dim(expert.getExpertLoop());
  return shares(dim, rule.operands[other]) && shares(dim, rule.results.front());
}

/// Returns the sizes of operand `number` of a matmul as a matrix or a stack of them.
static std::optional<MatrixSizes> sizesOf(Operation *op, unsigned number) {
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  auto type = tensorType(op->getOperand(number));
  if (!shardable || !isMatmul(op) || op->getNumOperands() < 2 || type.getRank() < 2 ||
      type.getRank() > 3)
    return std::nullopt;
  const FactorRule rule = shardable.getFactorRule();
  const unsigned other = number == 0 ? 1 : 0; // the operand with the features
  if (type.getRank() == 3 && !isStack(op, rule, number, other))
    return std::nullopt;
  const int64_t first = type.getRank() - 2, second = first + 1;
  auto isIn = [&](int64_t dim) {
    const FactorRule::Dim &of = rule.operands[number][dim];
    return shares(of, rule.operands[other]) && !shares(of, rule.results.front());
  };
  auto isOut = [&](int64_t dim) {
    const FactorRule::Dim &of = rule.operands[number][dim];
    return !shares(of, rule.operands[other]) && shares(of, rule.results.front());
  };
  // A layer inside of an op has one of its two widths in there.
  const bool isInFirst = (isIn(first) && !isIn(second)) || (isOut(second) && !isOut(first));
  const bool isInSecond = (isIn(second) && !isIn(first)) || (isOut(first) && !isOut(second));
  if (isInFirst == isInSecond)
    return std::nullopt;
  return MatrixSizes{type.getDimSize(isInFirst ? first : second),
                     type.getDimSize(isInFirst ? second : first)};
}

/// Returns the sizes of `value`, a parameter or a cast of one, if every forward op reads it as the
/// same matrix.
static std::optional<MatrixSizes> sizesOf(Value value) {
  std::optional<MatrixSizes> found;
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (phaseOf(op) != reshard::Phase::Forward || isa<func::ReturnOp>(op))
      continue;
    std::optional<MatrixSizes> sizes =
        isa<CastOp>(op) ? sizesOf(op->getResult(0)) : sizesOf(op, use.getOperandNumber());
    if (!sizes || (found && !(*found == *sizes)))
      return std::nullopt;
    found = sizes;
  }
  return found;
}

static Value withoutCasts(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  return value;
}

/// Returns the parameters read by the last matmuls before the loss.
static llvm::DenseSet<Value> findHead(func::FuncOp train) {
  llvm::DenseSet<Value> head, seen;
  SmallVector<Value> waiting;
  Operation *terminator = train.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (resultRole(train, i) == TensorRole::Loss)
      waiting.push_back(value);
  while (!waiting.empty()) {
    Operation *op = waiting.pop_back_val().getDefiningOp();
    if (!op)
      continue;
    for (Value operand : op->getOperands())
      if (isMatmul(op))
        head.insert(withoutCasts(operand));
      else if (seen.insert(operand).second)
        waiting.push_back(operand);
  }
  return head;
}

FailureOr<SmallVector<std::optional<MatrixSizes>>>
findHiddenMatrices(func::FuncOp train, ArrayRef<std::string> exempt) {
  FailureOr<SmallVector<bool>> isExempt = matchParameters(train, exempt, "--no-muon");
  if (failed(isExempt))
    return failure();
  const llvm::DenseSet<Value> head = findHead(train);
  SmallVector<std::optional<MatrixSizes>> matrices(train.getNumArguments());
  for (BlockArgument arg : train.getArguments()) {
    const unsigned index = arg.getArgNumber();
    if (argumentRole(train, index) == TensorRole::Parameter && !(*isExempt)[index] &&
        !head.contains(arg))
      matrices[index] = sizesOf(arg);
  }
  return matrices;
}

double rateScale(const MatrixSizes &sizes, const MuonOptions &options) {
  const double in = double(sizes.in), out = double(sizes.out);
  return options.matchesRms ? 0.2 * std::sqrt(std::max(in, out))
                            : std::sqrt(std::max(1.0, out / in));
}

namespace {

/// The matmuls of one iteration, on the last two dims of a tensor; dims in front number matrices.
struct Iteration {
  Formula &f;
  bool hasBatch, isTall; // tall: more rows than columns

  /// Returns a with labels of `left` times b with labels of `right`, as labels of `out`.
  Value multiply(Value a, Value b, std::array<int64_t, 2> left, std::array<int64_t, 2> right,
                 std::array<int64_t, 2> out) {
    constexpr int64_t batch = 3;
    auto labels = [&](std::array<int64_t, 2> of) {
      SmallVector<int64_t> all;
      if (hasBatch)
        all.push_back(batch);
      all.append(of.begin(), of.end());
      return all;
    };
    return f.einsum(a, b, labels(left), labels(right), labels(out));
  }

  Value sum(Value a, double alpha, Value b, double beta) {
    return f.make<WeightedSumOp>(a, b, f.builder.getF64FloatAttr(alpha),
                                 f.builder.getF64FloatAttr(beta));
  }

  Value next(Value x, const MuonOptions &o) {
    Value gram =
        isTall ? multiply(x, x, {2, 0}, {2, 1}, {0, 1}) : multiply(x, x, {0, 2}, {1, 2}, {0, 1});
    Value update = sum(gram, o.b, multiply(gram, gram, {0, 2}, {2, 1}, {0, 1}), o.c);
    Value turned = isTall ? multiply(x, update, {0, 2}, {2, 1}, {0, 1})
                          : multiply(update, x, {0, 2}, {2, 1}, {0, 1});
    return sum(x, o.a, turned, 1);
  }
};

} // namespace

Value orthogonalize(Formula &f, Value direction, const MuonOptions &options) {
  auto type = tensorType(direction);
  const int64_t rows = type.getRank() - 2, columns = rows + 1;
  Value gathered = f.make<GatherMatricesOp>(direction);
  Value wide = f.wide(gathered);
  Value squares = f.sum(f.mul(wide, wide), {rows, columns});
  Value repeated = f.repeat(squares, wide, {rows, columns});
  // Cast once more, so that the kernel reads the narrow tensor.
  Value x = f.make<DivideByNormOp>(f.wide(gathered), repeated,
                                   f.builder.getF64FloatAttr(options.epsilon));
  x = f.cast(x, type.getElementType());
  Iteration iteration{f, type.getRank() > 2, type.getDimSize(rows) > type.getDimSize(columns)};
  for (int64_t i = 0; i < options.steps; ++i)
    x = iteration.next(x, options);
  return f.make<ShardMatricesOp>(x);
}

} // namespace tbc

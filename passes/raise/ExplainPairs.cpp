//===- ExplainPairs.cpp - Warns of weights of pairs that are held ----------===//
//
// An attention op computes its weights block by block and holds none. Two matmuls with other ops
// between them hold a weight for each pair of a query and a key, also if they are no attention that
// the op can express. Examples: relu(q k') v, softmax(a (q k')) v with a mix `a` of heads.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "ir/Roles.h"
#include "ir/Vocabulary.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// A weight is computed by few ops. Bounds the search behind other values.
constexpr size_t kMostSources = 64;

int64_t elementsOf(Value value) { return tensorType(value).getNumElements(); }

bool isMove(Operation *op) {
  return isa<CastOp, ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp>(op);
}

/// Returns true if `value` is an argument of the function but for moves, or computed from
/// parameters and constants alone: a weight. Example: the rows of a matrix, each divided by its
/// norm.
bool isWeight(Value value) {
  Value moved = value;
  while (Operation *op = moved.getDefiningOp()) {
    if (!isMove(op))
      break;
    moved = op->getOperand(0);
  }
  if (isa<BlockArgument>(moved))
    return true;
  llvm::SmallSetVector<Value, 16> sources;
  sources.insert(moved);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (auto argument = dyn_cast<BlockArgument>(sources[i])) {
      auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
      if (!function || argumentRole(function, argument.getArgNumber()) != TensorRole::Parameter)
        return false;
      continue;
    }
    if (sources.size() > kMostSources)
      return false;
    Operation *op = sources[i].getDefiningOp();
    sources.insert(op->operand_begin(), op->operand_end());
  }
  return true;
}

/// A matmul that makes more elements than it reads and is none of weights: scores of pairs. An
/// outer product sums over no dim.
bool makesPairs(EinsumOp scores) {
  bool sums = llvm::any_of(scores.getLhsLabels(), [&](int64_t label) {
    return !llvm::is_contained(scores.getOutLabels(), label);
  });
  return sums && !isWeight(scores.getLhs()) && !isWeight(scores.getRhs()) &&
         elementsOf(scores.getResult()) > elementsOf(scores.getLhs()) + elementsOf(scores.getRhs());
}

/// The way from scores of pairs to the matmul that sums over them.
class Pairs {
public:
  explicit Pairs(EinsumOp product) : product(product) {
    for (Value operand : {product.getLhs(), product.getRhs()})
      if (!scores && elementsOf(operand) > elementsOf(product.getResult()) && follow(operand, 0))
        weights = operand;
    other = weights == product.getLhs() ? product.getRhs() : product.getLhs();
  }

  bool isFound() { return scores && !isWeight(other) && (computes || ratio() > kLargestChunk); }
  const llvm::SmallSetVector<StringRef, 8> &opsBetween() const { return between; }

  /// Returns the number of weights over the elements of queries, keys and values.
  double ratio() {
    return double(elementsOf(weights)) /
           double(elementsOf(scores.getLhs()) + elementsOf(scores.getRhs()) + elementsOf(other));
  }

private:
  /// Walks up through ops that keep the number of elements, within a factor of 2.
  bool follow(Value value, int depth) {
    Operation *op = value.getDefiningOp();
    if (!op || depth > 24 || !seen.insert(op).second)
      return false;
    if (auto einsum = dyn_cast<EinsumOp>(op); einsum && makesPairs(einsum)) {
      scores = einsum;
      return true;
    }
    for (Value operand : op->getOperands()) {
      int64_t elements = elementsOf(operand);
      if (2 * elements < elementsOf(value) || elements > 2 * elementsOf(value) ||
          !follow(operand, depth + 1))
        continue;
      if (!isMove(op)) {
        between.insert(op->getName().stripDialect());
        computes |= !isa<MulOp, DivOp, SelectOp>(op);
      }
      return true;
    }
    return false;
  }

  EinsumOp product, scores;
  Value weights, other;
  /// The largest ratio within a chunk of linear attention. A chunk of c positions with heads of d
  /// elements has c / (3 d).
  static constexpr double kLargestChunk = 8;
  /// Whether an op stands between that is no scale and no mask. Those of linear attention are only
  /// masks within a chunk; over whole sequences its weights of pairs are as large as others.
  bool computes = false;
  llvm::DenseSet<Operation *> seen;
  llvm::SmallSetVector<StringRef, 8> between;
};

} // namespace

std::string whyPairsStay(Operation *product) {
  Pairs pairs(cast<EinsumOp>(product));
  if (!pairs.isFound())
    return "";
  return "between its matmuls stand " + llvm::join(pairs.opsBetween(), ", ") +
         ", which is no softmax of scores, masks and biases";
}

std::string priceOfPairs(Operation *product) {
  Pairs pairs(cast<EinsumOp>(product));
  if (!pairs.isFound())
    return "";
  return llvm::formatv(" (its weights are held: {0:F1} times the elements of its queries, keys and "
                       "values)",
                       pairs.ratio())
      .str();
}

} // namespace tbc::raise

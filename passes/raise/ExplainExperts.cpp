//===- ExplainExperts.cpp - Warns of mixtures of experts that stay apart ---===//
//
// A router is a topk. Its result is followed until it meets the outputs of experts, or gathers
// their weights. From there the matmuls of the experts are found, and counted.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Experts.h"
#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Experts.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "ir/Vocabulary.h"
#include "planner/reshard/KernelClass.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// Returns true if `op` only moves elements or changes their type.
bool isMove(Operation *op) {
  return isa_and_nonnull<CastOp, ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp, GatherOp,
                         EmbeddingOp>(op);
}

/// Returns true if `value` is an input of the model but for moves: a weight, or tokens.
bool isArgument(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isMove(op))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

/// The layers of experts behind one router.
class Missed {
public:
  explicit Missed(TopKOp router) : router(router) {
    auto type = tensorType(router.getInput());
    experts = type.getDimSize(router.getDim());
    chosen = tensorType(router->getResult(0)).getDimSize(router.getDim());
    tokens = type.getNumElements() / experts;
    limit = type.getNumElements() * chosen;
    for (Value result : router->getResults())
      follow(result);
  }

  /// Returns true if the matmuls are of experts: their weights are gathered, have a dim of experts,
  /// or are as many as experts have. Else the top-k chooses something else. Example: a mixture of
  /// depths chooses 12 of 24 tokens for one block, whose results are then multiplied by scores.
  bool haveExperts() const {
    return matmuls.size() >= 2 && chosen < experts &&
           (copiedBytes > 0 || areStacked() || int64_t(matmuls.size()) >= 2 * experts);
  }

  bool isRaised = false;
  int64_t tokens = 0, experts = 0, chosen = 0;
  llvm::SmallSetVector<Operation *, 16> matmuls;
  llvm::SmallSetVector<StringRef, 8> between;
  /// Bytes of weights that are copied for each choice of each token.
  int64_t copiedBytes = 0;

private:
  /// Returns true if every weight with more than two dims has one of experts, that its result
  /// keeps. Example: [4, 32, 24] of four experts with 24 inner numbers, for a top-k of 4. For a
  /// top-k of 24 tokens it is not, though the first layer keeps a dim of 24: the second one sums
  /// over it.
  bool areStacked() const {
    int stacked = 0;
    for (Operation *op : matmuls) {
      auto matmul = cast<EinsumOp>(op);
      bool isRight = isArgument(matmul.getRhs());
      ArrayRef<int64_t> labels = isRight ? matmul.getRhsLabels() : matmul.getLhsLabels();
      auto weight = tensorType(isRight ? matmul.getRhs() : matmul.getLhs());
      if (weight.getRank() <= 2)
        continue;
      ++stacked;
      if (llvm::none_of(llvm::zip(weight.getShape(), labels), [&](auto pair) {
            auto [size, label] = pair;
            return size == experts && llvm::is_contained(matmul.getOutLabels(), label);
          }))
        return false;
    }
    return stacked > 0;
  }

  /// Walks down to the ops that combine the result with outputs of experts, or gather weights by
  /// it. Ops with a result larger than all choices of all tokens are not followed, but for moves.
  void follow(Value value) {
    for (Operation *user : value.getUsers()) {
      if (!seen.insert(user).second)
        continue;
      isRaised |= isa<RoutedExpertsOp, DispatchOp, CombineOp>(user);
      if (user->getNumResults() == 0 || isRaised || takesExperts(user, value))
        continue;
      if (isMove(user) || tensorType(user->getResult(0)).getNumElements() <= limit)
        for (Value result : user->getResults())
          follow(result);
    }
  }

  /// Takes the experts that `user` combines with `value`, or gathers by it; false without any.
  bool takesExperts(Operation *user, Value value) {
    if (isa<GatherOp, EmbeddingOp>(user) && user->getOperand(1) == value) {
      takeGathered(user);
      return copiedBytes > 0;
    }
    if (!isa<EinsumOp, MulOp>(user))
      return false;
    auto before = matmuls;
    auto stoodBetween = between;
    walked.clear();
    for (Value operand : user->getOperands())
      if (operand != value)
        takeOutput(operand, 0);
    // A single layer is the router's own.
    if (matmuls.size() >= before.size() + 2)
      return true;
    matmuls = before;
    between = stoodBetween;
    return false;
  }

  /// `gather` copies weights for each choice: takes the matmuls with them.
  void takeGathered(Operation *gather) {
    auto type = tensorType(gather->getResult(0));
    if (tensorType(gather->getOperand(0)).getRank() != 3)
      return;
    copiedBytes += type.getNumElements() * (type.getElementTypeBitWidth() / 8);
    llvm::SmallVector<Operation *> moves{gather};
    while (!moves.empty())
      for (Operation *user : moves.pop_back_val()->getUsers()) {
        if (isMove(user))
          moves.push_back(user);
        else if (auto matmul = dyn_cast<EinsumOp>(user); matmul && matmuls.insert(matmul))
          takeOutput(matmul.getResult(), 0);
      }
  }

  /// `value` is an expert's output, or a part of it. Walks up through two layers.
  void takeOutput(Value value, int layers) {
    Operation *op = value.getDefiningOp();
    if (!op || layers == 2 || !walked.insert({op, layers}).second ||
        isa<TopKOp, SoftmaxOp, RmsNormOp, LayerNormOp>(op))
      return;
    if (auto matmul = dyn_cast<EinsumOp>(op)) {
      bool isLeft = isArgument(matmul.getRhs()), isRight = isArgument(matmul.getLhs());
      if (!isLeft && !isRight)
        return;
      matmuls.insert(op);
      takeOutput(isLeft ? matmul.getLhs() : matmul.getRhs(), layers + 1);
      return;
    }
    if (layers == 1 && !isMove(op) && op->getNumOperands() > 0)
      between.insert(op->getName().stripDialect());
    bool hasIndices = isa<GatherOp, EmbeddingOp>(op);
    for (Value operand : hasIndices ? op->getOperands().take_front(1) : op->getOperands())
      takeOutput(operand, layers);
  }

  TopKOp router;
  int64_t limit = 0;
  llvm::DenseSet<Operation *> seen;
  llvm::DenseSet<std::pair<Operation *, int>> walked;
};

double matmulFlops(Operation *op) {
  auto cost = dyn_cast<CostOpInterface>(op);
  return cost && isMatrixClass(cost.getKernelClass()) ? cost.getFlops() : 0;
}

} // namespace

void explainExperts(func::FuncOp function) {
  double all = 0;
  function.walk([&](Operation *op) { all += matmulFlops(op); });
  for (auto router : function.getOps<TopKOp>()) {
    Missed missed(router);
    if (missed.isRaised || !missed.haveExperts())
      continue;
    double flops = 0;
    for (Operation *matmul : missed.matmuls)
      flops += matmulFlops(matmul);
    std::string price =
        missed.copiedBytes > 0
            ? llvm::formatv("{0:F1} KiB of weights are copied for each token",
                            double(missed.copiedBytes) / double(missed.tokens) / (1 << 10))
                  .str()
            : llvm::formatv("all {0} experts compute all tokens, {1:F1} times the FLOPs of the "
                            "top {2}",
                            missed.experts, double(missed.experts) / double(missed.chosen),
                            missed.chosen)
                  .str();
    router.emitRemark() << "the experts of this router stay decomposed, so " << price
                        << "; their matmuls are "
                        << llvm::formatv("{0:F1}", 100 * flops / all).str()
                        << " % of the FLOPs of all matmuls. Between their two layers "
                        << (missed.between.empty() ? "stands nothing"
                                                   : "stand " + llvm::join(missed.between, ", "))
                        << "; routed_experts has silu, gelu or relu there, times a second half "
                           "or not";
  }
}

} // namespace tbc::raise

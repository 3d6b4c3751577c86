//===- Batch.cpp - Replace the batch marker by the batch size --------------===//

#include "frontend/onnx/Batch.h"

#include "frontend/onnx/Known.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tbc::frontend {

/// Returns `size` with each factor `marker` replaced by `batch`; ImportError if the result is too
/// large. Example: 970 with marker 97 and batch 8 is 80.
static int64_t rebound(int64_t size, int64_t marker, int64_t batch) {
  int64_t copies = 1;
  for (; size != 0 && size % marker == 0; size /= marker)
    copies = productOf(copies, batch);
  return productOf(size, copies);
}

void bindBatch(func::FuncOp function, int64_t marker, int64_t batch) {
  auto newType = [&](Type type) -> Type {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape;
    for (int64_t size : tensor.getShape())
      shape.push_back(rebound(size, marker, batch));
    if (saturatedElements(Shape(shape.begin(), shape.end())) > (int64_t(1) << 56))
      throw ImportError("the batch is " + std::to_string(batch) +
                        ", which makes a tensor of more than 2^56 elements");
    return RankedTensorType::get(shape, tensor.getElementType());
  };
  Block &body = function.getBody().front();
  // Factor rules read types, so all rules are queried before any type changes.
  SmallVector<std::pair<ShardableOpInterface, SmallVector<int64_t>>> loops;
  for (Operation &op : body.without_terminator())
    if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      SmallVector<int64_t> sizes;
      for (const FactorRule::Loop &loop : shardable.getFactorRule().loops)
        sizes.push_back(rebound(loop.size, marker, batch));
      loops.push_back({shardable, sizes});
    }
  for (BlockArgument argument : body.getArguments())
    argument.setType(newType(argument.getType()));
  for (Operation &op : body.without_terminator()) {
    for (Value result : op.getResults())
      result.setType(newType(result.getType()));
    if (auto size = dyn_cast<FactorSizeOp>(op))
      size.setSamples(rebound(size.getSamples(), marker, batch));
  }
  for (auto &[op, sizes] : loops)
    op.resizeLoops(sizes);
  function.setFunctionType(FunctionType::get(function.getContext(), body.getArgumentTypes(),
                                             body.getTerminator()->getOperandTypes()));
}

/// Returns how often `marker` divides `size`. Example: 2 * marker^2 gives 2.
static int factorsOf(int64_t size, int64_t marker) {
  int factors = 0;
  for (; size != 0 && size % marker == 0; size /= marker)
    ++factors;
  return factors;
}

bool pairsSamples(ArrayRef<int64_t> shape, int64_t marker) {
  int factors = 0;
  for (int64_t size : shape)
    factors += factorsOf(size, marker);
  return factors > 1;
}

Operation *firstMeeting(Block &block, int64_t marker) {
  for (Operation &op : block)
    for (Value result : op.getResults())
      if (pairsSamples(tensorType(result).getShape(), marker))
        return &op;
  return nullptr;
}

std::string nodeOf(Operation *op, const std::string &otherwise) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? "node '" + name.getName().str() + "'" : otherwise;
}

/// Returns true if `value` has no dim over the batch, and is computed from inputs that have one.
static bool isStatistic(mlir::Value value, int64_t marker) {
  auto isOverBatch = [&](mlir::Value tensor) {
    return llvm::any_of(tensorType(tensor).getShape(),
                        [&](int64_t size) { return factorsOf(size, marker) > 0; });
  };
  if (isOverBatch(value))
    return false;
  llvm::SetVector<mlir::Value> sources;
  sources.insert(value);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (isOverBatch(sources[i]))
      return true;
    if (Operation *op = sources[i].getDefiningOp())
      sources.insert(op->operand_begin(), op->operand_end());
  }
  return false;
}

/// ImportError if the batch size is more than a part of a mean, where no samples meet. Examples:
/// sum(x) / batch is a loss, a sum of squares / (batch - 1) a variance, and x / batch is another
/// function for every batch.
static void checkSampleCounts(Block &block, int64_t marker, bool meets) {
  llvm::SetVector<mlir::Value> counts; // sizes, and values made of them and of constants
  for (auto size : block.getOps<FactorSizeOp>())
    if (size->removeAttr(kSampleCountAttr) && !meets)
      counts.insert(size);
  auto isNumber = [&](mlir::Value value) {
    return counts.contains(value) || value.getDefiningOp<ConstantOp>();
  };
  for (size_t i = 0; i < counts.size(); ++i)
    for (OpOperand &use : counts[i].getUses()) {
      Operation *op = use.getOwner();
      bool isDivisor = isa<DivOp>(op) && use.getOperandNumber() == 1;
      if (op->getNumResults() == 1 && llvm::all_of(op->getOperands(), isNumber))
        counts.insert(op->getResult(0));
      else if (!(isDivisor && tensorType(op->getResult(0)).getRank() == 0) &&
               !(isa<DivOp, MulOp>(op) && isStatistic(op->getResult(0), marker)))
        throw ImportError(nodeOf(op, "the result") + batchAsNumber());
    }
}

std::string batchAsNumber() {
  return " computes with the batch size as a number, so the model means something else at every "
         "batch size; export it without that";
}

std::string checkMeetings(Block &block, int64_t marker, const std::string &tableOverBatch) {
  auto listsPairs = [&](Value value) {
    return llvm::any_of(tensorType(value).getShape(),
                        [&](int64_t size) { return factorsOf(size, marker) > 1; });
  };
  for (Operation &op : block)
    if (llvm::any_of(op.getResults(), listsPairs))
      throw ImportError(nodeOf(&op, "the result") +
                        " lists all pairs of samples along one dim. Ranks cannot split the batch "
                        "in that dim; keep scores as [batch, batch], and reduce them dim by dim");
  Operation *meeting = firstMeeting(block, marker);
  if (!meeting && !tableOverBatch.empty())
    throw ImportError(tableOverBatch);
  checkSampleCounts(block, marker, meeting != nullptr);
  return meeting ? nodeOf(meeting, "the model") +
                       " joins every sample of the batch with every other, as contrastive losses "
                       "do; each step takes its batch as one micro-batch"
                 : "";
}

std::string perSampleRemedy() {
  return "tbc decides how many samples a rank computes at once, so each op must take all of them. "
         "Write that part for a tensor [batch, ...] (docs/export.md, \"Samples\")";
}

bool areSame(Value a, Value b) {
  llvm::SetVector<std::pair<Value, Value>> pairs;
  pairs.insert({a, b});
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto [x, y] = pairs[i];
    if (x == y)
      continue;
    auto left = dyn_cast<OpResult>(x), right = dyn_cast<OpResult>(y);
    if (!left || !right || x.getType() != y.getType() ||
        left.getResultNumber() != right.getResultNumber())
      return false;
    Operation *op = left.getOwner(), *other = right.getOwner();
    if (op->getName() != other->getName() || op->getNumOperands() != other->getNumOperands() ||
        op->getAttrDictionary() != other->getAttrDictionary())
      return false;
    for (auto [operand, match] : llvm::zip(op->getOperands(), other->getOperands()))
      pairs.insert({operand, match});
  }
  return true;
}

Operation *firstDifference(func::FuncOp a, func::FuncOp b) {
  llvm::DenseMap<Value, Value> counterpart;
  Block &left = a.getBody().front(), &right = b.getBody().front();
  for (auto [x, y] : llvm::zip(left.getArguments(), right.getArguments()))
    counterpart[x] = y;
  auto other = right.begin();
  for (Operation &op : left) {
    if (other == right.end())
      return &op;
    Operation &match = *other++;
    bool same = op.getName() == match.getName() && op.getNumOperands() == match.getNumOperands() &&
                op.getAttrDictionary() == match.getAttrDictionary() &&
                llvm::equal(op.getResultTypes(), match.getResultTypes());
    for (unsigned i = 0; same && i < op.getNumOperands(); ++i)
      same = counterpart.lookup(op.getOperand(i)) == match.getOperand(i);
    if (!same)
      return &op;
    for (auto [x, y] : llvm::zip(op.getResults(), match.getResults()))
      counterpart[x] = y;
  }
  return other == right.end() ? nullptr : &*other;
}

} // namespace tbc::frontend

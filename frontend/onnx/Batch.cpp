//===- Batch.cpp - Replace the batch marker by the batch size --------------===//

#include "frontend/onnx/Batch.h"

#include "frontend/onnx/Known.h"
#include "ir/Elementwise.h"
#include "ir/FactorAnalysis.h"
#include "ir/Movement.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
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

/// Returns how often `marker` divides `size`. Example: 2 * marker^2 gives 2.
static int factorsOf(int64_t size, int64_t marker) {
  int factors = 0;
  for (; size != 0 && size % marker == 0; size /= marker)
    ++factors;
  return factors;
}

namespace {

/// The batch in the dims of a function at a marker. A size that `marker` divides shows its batch. A
/// dim that joins samples with other rows does not (marker + 1), so the factors of its parts are
/// read there. Example: scores of all pairs beside one column, [marker, marker + 1].
class BatchDims {
public:
  BatchDims(func::FuncOp function, int64_t marker) : marker(marker) {
    if (joinsSamples(function.getBody().front()))
      analysis.emplace(function);
  }

  /// How often the batch is a factor of dim `dim`; the most of its parts.
  int factors(Value value, unsigned dim) const {
    if (!analysis)
      return factorsOf(tensorType(value).getDimSize(dim), marker);
    int most = 0;
    for (const reshard::Segment &segment : analysis->dimLayout(value, dim).segments) {
      int count = 0;
      for (const reshard::Factor &factor : segment.factors)
        count += factorsOf(factor.size, marker);
      most = std::max(most, count);
    }
    return most;
  }
  int factors(Value value) const {
    int count = 0;
    for (unsigned dim = 0; dim < tensorType(value).getRank(); ++dim)
      count += factors(value, dim);
    return count;
  }

  RankedTensorType newType(Value value, int64_t batch) const {
    SmallVector<int64_t> shape;
    for (auto [dim, size] : llvm::enumerate(tensorType(value).getShape()))
      shape.push_back(analysis ? newSize(analysis->dimLayout(value, dim), batch)
                               : rebound(size, marker, batch));
    if (saturatedElements(Shape(shape.begin(), shape.end())) > (int64_t(1) << 56))
      throw ImportError("the batch is " + std::to_string(batch) +
                        ", which makes a tensor of more than 2^56 elements");
    return RankedTensorType::get(shape, tensorType(value).getElementType());
  }

  SmallVector<int64_t> newLoops(ShardableOpInterface op, int64_t batch) const {
    SmallVector<int64_t> sizes;
    for (auto [i, loop] : llvm::enumerate(op.getFactorRule().loops))
      sizes.push_back(analysis ? newSize(analysis->loopLayout(op, i), batch)
                               : rebound(loop.size, marker, batch));
    return sizes;
  }

private:
  int64_t newSize(const reshard::DimLayout &layout, int64_t batch) const {
    int64_t total = 0;
    for (const reshard::Segment &segment : layout.segments) {
      int64_t product = 1;
      for (const reshard::Factor &factor : segment.factors)
        product = productOf(product, rebound(factor.size, marker, batch));
      total += product;
    }
    return total;
  }

  /// Whether some dim has parts with the batch and parts without.
  bool joinsSamples(Block &block) const {
    auto isJoin = [&](const FactorRule &rule, const FactorRule::Dim &dim) {
      size_t overBatch = 0;
      for (const FactorRule::Product &product : dim)
        overBatch += llvm::any_of(
            product, [&](unsigned loop) { return factorsOf(rule.loops[loop].size, marker) > 0; });
      return overBatch > 0 && overBatch < dim.size();
    };
    return llvm::any_of(block, [&](Operation &op) {
      auto shardable = dyn_cast<ShardableOpInterface>(op);
      if (!shardable)
        return false;
      FactorRule rule = shardable.getFactorRule();
      auto hasJoin = [&](const auto &dims) {
        return llvm::any_of(dims, [&](const FactorRule::Dim &dim) { return isJoin(rule, dim); });
      };
      return llvm::any_of(rule.operands, hasJoin) || llvm::any_of(rule.results, hasJoin);
    });
  }

  int64_t marker;
  std::optional<FactorAnalysis> analysis; // with joined dims only
};

} // namespace

void bindBatch(func::FuncOp function, int64_t marker, int64_t batch) {
  Block &body = function.getBody().front();
  const BatchDims dims(function, marker);
  // Factor rules read types, so all rules are queried before any type changes.
  SmallVector<std::pair<ShardableOpInterface, SmallVector<int64_t>>> loops;
  SmallVector<std::pair<Value, Type>> types;
  for (BlockArgument argument : body.getArguments())
    types.push_back({argument, dims.newType(argument, batch)});
  for (Operation &op : body.without_terminator()) {
    for (Value result : op.getResults())
      types.push_back({result, dims.newType(result, batch)});
    if (auto shardable = dyn_cast<ShardableOpInterface>(op))
      loops.push_back({shardable, dims.newLoops(shardable, batch)});
    if (auto size = dyn_cast<FactorSizeOp>(op))
      size.setSamples(rebound(size.getSamples(), marker, batch));
  }
  for (auto &[value, type] : types)
    value.setType(type);
  for (auto &[op, sizes] : loops)
    op.resizeLoops(sizes);
  function.setFunctionType(FunctionType::get(function.getContext(), body.getArgumentTypes(),
                                             body.getTerminator()->getOperandTypes()));
}

std::string nodeOf(Operation *op, const std::string &otherwise) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? "node '" + name.getName().str() + "'" : otherwise;
}

namespace {

/// The statistics of the batch in a function: values without a dim over the batch, computed from
/// such that have one. Example: the mean of x[batch, 4] over the samples.
class Statistics {
public:
  Statistics(Block &block, int64_t marker) {
    auto isOverBatch = [&](Value value) {
      return llvm::any_of(tensorType(value).getShape(),
                          [&](int64_t size) { return factorsOf(size, marker) > 0; });
    };
    for (BlockArgument argument : block.getArguments())
      if (isOverBatch(argument))
        dependent.insert(argument);
    for (Operation &op : block) {
      bool depends =
          llvm::any_of(op.getOperands(), [&](Value value) { return dependent.contains(value); });
      bool reads = llvm::any_of(op.getOperands(), [&](Value value) {
        return contains(value) || readers.contains(value);
      });
      for (Value result : op.getResults()) {
        if (depends || isOverBatch(result))
          dependent.insert(result);
        if (depends && !isOverBatch(result))
          statistics.insert(result);
        if (reads)
          readers.insert(result);
      }
    }
  }

  bool contains(Value value) const { return statistics.contains(value); }
  /// Whether `value` is or depends on a statistic, so that it means another thing for every batch.
  bool reach(Value value) const { return contains(value) || readers.contains(value); }

private:
  llvm::DenseSet<Value> dependent, statistics, readers;
};

} // namespace

/// ImportError if the batch size is more than a part of a mean, where no samples meet. Examples:
/// sum(x) / batch is a loss, a sum of squares / (batch - 1) a variance, x / sum(x) * batch has a
/// mean of 1, and x / batch is another function for every batch.
static void checkSampleCounts(Block &block, int64_t marker, bool meets) {
  const Statistics statistics(block, marker);
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
               !(isa<DivOp, MulOp>(op) && statistics.reach(op->getResult(0))))
        throw ImportError(nodeOf(op, "the result") + batchAsNumber());
    }
}

std::string batchAsNumber() {
  return " computes with the batch size as a number, so the model means something else at every "
         "batch size; export it without that";
}

std::string placesOfSamples() {
  return "takes samples of the batch by their places, such as halves, pairs or neighbours. tbc "
         "splits the batch among ranks and micro-batches, so give the other sample by an input of "
         "its own, [batch, ...], or both in one, [batch, 2, ...] (docs/export.md, \"Samples\")";
}

std::string checkMeetings(func::FuncOp function, int64_t marker,
                          const std::string &tableOverBatch) {
  Block &block = function.getBody().front();
  const BatchDims dims(function, marker);
  auto listsPairs = [&](Value value) {
    return llvm::any_of(llvm::seq<unsigned>(0, tensorType(value).getRank()),
                        [&](unsigned dim) { return dims.factors(value, dim) > 1; });
  };
  for (Operation &op : block)
    if (llvm::any_of(op.getResults(), listsPairs))
      throw ImportError(nodeOf(&op, "the result") +
                        " lists all pairs of samples along one dim. Ranks cannot split the batch "
                        "in that dim; keep scores as [batch, batch], and reduce them dim by dim");
  auto pairsSamples = [&](Operation &op) {
    return llvm::any_of(op.getResults(), [&](Value value) { return dims.factors(value) > 1; });
  };
  auto found = llvm::find_if(block, pairsSamples);
  Operation *meeting = found == block.end() ? nullptr : &*found;
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

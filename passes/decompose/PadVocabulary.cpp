//===- PadVocabulary.cpp - Vocabularies divisible by devices ---------------===//

#include "passes/decompose/PadVocabulary.h"

#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Resize.h"
#include "ir/Roles.h"
#include "ir/Vocabulary.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_PADVOCABULARIESPASS
#include "passes/Passes.h.inc"

using reshard::DimLayout;
using reshard::FactorId;

/// Returns the operand of `op` with the numbers of a vocabulary, or null.
static Value numbersOf(Operation *op) {
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return embedding.getNumbers();
  if (auto sums = dyn_cast<ClassSumsOp>(op))
    return sums.getNumbers();
  if (auto maximum = dyn_cast<ClassMaxOp>(op))
    return maximum.getNumbers();
  return {};
}

static bool contains(const DimLayout &layout, FactorId factor) {
  for (const reshard::Segment &segment : layout.segments)
    for (const reshard::Factor &f : segment.factors)
      if (f.id == factor)
        return true;
  return false;
}

/// Returns true if `layout` is `factor` alone, or does not contain it.
static bool isAloneOrAbsent(const DimLayout &layout, FactorId factor) {
  return !contains(layout, factor) ||
         (layout.segments.size() == 1 && layout.segments[0].factors.size() == 1);
}

/// Returns true if `iota` is used for numbers of vocabularies alone.
static bool onlyNumbers(IotaOp iota) {
  return llvm::all_of(iota.getResult().getUsers(), [&](Operation *user) {
    return numbersOf(user) == iota.getResult() || isa<ReduceMaxOp>(user);
  });
}

/// Returns true if `op` treats the indices of `factor` one by one, or skips padding.
static bool allowsPadding(Operation *op, const FactorAnalysis &analysis, FactorId factor) {
  for (Value result : op->getResults())
    for (unsigned dim = 0; dim < tensorType(result).getRank(); ++dim)
      if (!isAloneOrAbsent(analysis.dimLayout(result, dim), factor))
        return false;
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return true; // the terminator: see mayPad
  FactorRule rule = shardable.getFactorRule();
  for (auto [i, loop] : llvm::enumerate(rule.loops)) {
    if (!contains(analysis.loopLayout(op, i), factor))
      continue;
    if (Value numbers = numbersOf(op); numbers && contains(analysis.dimLayout(numbers, 0), factor))
      continue;
    if (auto iota = dyn_cast<IotaOp>(op)) {
      if (!onlyNumbers(iota))
        return false;
      continue;
    }
    if (isa<ReduceMaxOp>(op) && op->getOperand(0).getDefiningOp<IotaOp>())
      continue;
    auto constant = dyn_cast<ConstantOp>(op);
    if (loop.kind != LoopKind::Parallel || (constant && !constant.getValue().isSplat()))
      return false;
  }
  return true;
}

static bool mayPad(func::FuncOp train, const FactorAnalysis &analysis, FactorId factor) {
  if (!resizableFactors(train, analysis).count(factor))
    return false;
  auto has = [&](Value value) {
    for (unsigned dim = 0; dim < tensorType(value).getRank(); ++dim)
      if (contains(analysis.dimLayout(value, dim), factor))
        return true;
    return false;
  };
  for (BlockArgument arg : train.getArguments()) {
    if (has(arg) && argumentRole(train, arg.getArgNumber()) != TensorRole::Parameter)
      return false;
    for (unsigned dim = 0; dim < tensorType(arg).getRank(); ++dim)
      if (!isAloneOrAbsent(analysis.dimLayout(arg, dim), factor))
        return false;
  }
  Block &body = train.getBody().front();
  return llvm::none_of(body.getTerminator()->getOperands(), has) &&
         llvm::all_of(body, [&](Operation &op) { return allowsPadding(&op, analysis, factor); });
}

/// Returns the only factor of a dim, or nullopt.
static std::optional<FactorId> singleFactor(const DimLayout &layout) {
  if (layout.segments.size() != 1 || layout.segments[0].factors.size() != 1)
    return std::nullopt;
  return layout.segments[0].factors[0].id;
}

/// Sets the numbers of padding to -1.
static void markPadding(IotaOp iota, int64_t size) {
  OpBuilder builder(iota->getContext());
  builder.setInsertionPointAfter(iota);
  Formula f{builder, iota.getLoc()};
  Value isValid = f.compare(iota, f.number(iota, double(size)), "lt");
  Value marked = f.select(isValid, iota, f.number(iota, -1));
  iota.getResult().replaceUsesWithIf(marked, [&](OpOperand &use) {
    return numbersOf(use.getOwner()) == use.get() || isa<ReduceMaxOp>(use.getOwner());
  });
}

/// Marks the parameters whose types differ from those before padding.
static void markPadded(func::FuncOp train, ArrayRef<Type> before) {
  Builder builder(train.getContext());
  for (BlockArgument arg : train.getArguments()) {
    const unsigned number = arg.getArgNumber();
    if (arg.getType() != before[number])
      train.setArgAttr(
          number, kUnpaddedAttr,
          builder.getDenseI64ArrayAttr(cast<RankedTensorType>(before[number]).getShape()));
  }
}

FailureOr<VocabularyPadding> padVocabularies(func::FuncOp train, int64_t multiple, bool isAnySize) {
  VocabularyPadding result;
  const SmallVector<Type> typesBefore(train.getArgumentTypes());
  auto &padded = result.padded;
  SmallVector<Operation *> users;
  for (Operation &op : train.getBody().front())
    if (Value numbers = numbersOf(&op)) {
      users.push_back(&op);
      result.largest = std::max(result.largest, tensorType(numbers).getDimSize(0));
    }
  for (Operation *user : users) {
    auto iota = numbersOf(user).getDefiningOp<IotaOp>();
    if (!iota) // padded with another user
      continue;
    int64_t size = iota.getType().getDimSize(0);
    int64_t paddedSize = (size + multiple - 1) / multiple * multiple;
    if (paddedSize == size)
      continue;
    const bool isLargest = size == result.largest;
    const bool isWanted = (paddedSize - size) * 64 < size || (isAnySize && isLargest);
    FactorAnalysis analysis(train);
    std::optional<FactorId> single =
        isWanted ? singleFactor(analysis.dimLayout(iota, 0)) : std::nullopt;
    if (!single || !mayPad(train, analysis, *single)) {
      result.leavesLargest |= isLargest;
      continue;
    }
    FactorId factor = *single;
    SmallVector<IotaOp> numberings;
    for (IotaOp other : train.getOps<IotaOp>())
      if (contains(analysis.dimLayout(other, 0), factor))
        numberings.push_back(other);
    if (failed(resizeFactors(train, analysis, {{factor, paddedSize}})))
      return failure();
    for (IotaOp numbering : numberings)
      markPadding(numbering, size);
    OpIds(train).assignMissing(train);
    if (llvm::none_of(padded, [&](const PaddedVocabulary &p) { return p.size == size; }))
      padded.push_back({size, paddedSize});
  }
  markPadded(train, typesBefore);
  return result;
}

namespace {
struct PadVocabularies : impl::PadVocabulariesPassBase<PadVocabularies> {
  using PadVocabulariesPassBase::PadVocabulariesPassBase;
  void runOnOperation() override {
    if (multiple < 1 || failed(padVocabularies(getOperation(), multiple)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc

//===- FoldReshapes.cpp - Merged dims stay apart ----------------------------===//

#include "passes/layout/FoldReshapes.h"

#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <deque>
#include <optional>

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_FOLDRESHAPESPASS
#include "passes/Passes.h.inc"

namespace {

using Sizes = SmallVector<int64_t, 4>;

/// For each dim of the reshape's result, the sizes of the input dims that it merges; of one input
/// dim, its size. Empty if a dim is split or has no factor.
SmallVector<Sizes> mergedDims(ReshapeOp reshape) {
  ArrayRef<int64_t> in = reshape.getIn(), out = reshape.getOut();
  ArrayRef<int64_t> shape = tensorType(reshape.getInput()).getShape();
  SmallVector<Sizes> merged;
  size_t dim = 0;
  for (int64_t factors : out) {
    merged.emplace_back();
    while (factors > 0 && dim < in.size() && in[dim] > 0 && in[dim] <= factors) {
      merged.back().push_back(shape[dim]);
      factors -= in[dim++];
    }
    if (factors != 0 || merged.back().empty())
      return {};
  }
  return dim == in.size() ? merged : SmallVector<Sizes>();
}

/// Returns the coarsest common refinement of two row-major factorisations of the same size, or
/// nothing if neither has it. Example: 2, 6 and 4, 3 have 2, 2, 3; and 2, 3 and 3, 2 have none.
std::optional<Sizes> commonFactors(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  Sizes result;
  size_t i = 0, j = 0;
  int64_t restA = 1, restB = 1; // of the factors that are begun
  while (i < a.size() || j < b.size() || restA > 1 || restB > 1) {
    if (restA == 1 && restB == 1 && i < a.size() && j < b.size() && a[i] == b[j]) {
      result.push_back(a[i]);
      ++i, ++j;
      continue;
    }
    if (restA == 1 && i < a.size())
      restA = a[i++];
    if (restB == 1 && j < b.size())
      restB = b[j++];
    const int64_t least = std::min(restA, restB);
    if (least == 1 || restA % least != 0 || restB % least != 0)
      return std::nullopt;
    result.push_back(least);
    restA /= least;
    restB /= least;
  }
  return result;
}

/// Moves merges of one function behind their readers.
class ReshapeFolder {
public:
  explicit ReshapeFolder(func::FuncOp model)
      : model(model), ids(model), builder(model.getContext()) {}

  void run() {
    for (ReshapeOp reshape : model.getOps<ReshapeOp>())
      work.push_back(reshape);
    while (!work.empty()) {
      ReshapeOp reshape = work.front();
      work.pop_front();
      fold(reshape);
    }
    eraseUnused(model, [](Operation *op) { return isa<ReshapeOp, BroadcastOp>(op); });
  }

private:
  void fold(ReshapeOp reshape) {
    // A reader may lose several uses at once.
    bool changed = true;
    while (changed) {
      changed = false;
      for (OpOperand &use : reshape->getUses())
        if (foldInto(reshape, use)) {
          changed = true;
          break;
        }
    }
  }

  bool foldInto(ReshapeOp reshape, OpOperand &use) {
    if (auto next = dyn_cast<ReshapeOp>(use.getOwner()))
      return join(reshape, next);
    const SmallVector<Sizes> merged = mergedDims(reshape);
    for (size_t dim = 0; dim < merged.size(); ++dim)
      if (merged[dim].size() > 1 && split(use, unsigned(dim), merged[dim]))
        return true;
    return false;
  }

  /// Makes one reshape of two in a row.
  bool join(ReshapeOp first, ReshapeOp second) {
    Value input = first.getInput();
    // A reshape keeps the row-major order, so tensors of one shape are equal.
    if (input.getType() == second.getType()) {
      second.replaceAllUsesWith(input);
      llvm::erase(work, second);
      second.erase();
      return true;
    }
    Sizes sizes;
    SmallVector<int64_t> in, out;
    size_t atFirst = 0, atSecond = 0;
    ArrayRef<int64_t> of = tensorType(first).getShape();
    for (size_t dim = 0; dim < of.size(); ++dim) {
      auto a = first.getSizes().slice(atFirst, size_t(first.getOut()[dim]));
      auto b = second.getSizes().slice(atSecond, size_t(second.getIn()[dim]));
      atFirst += a.size(), atSecond += b.size();
      std::optional<Sizes> common = commonFactors(a, b);
      if (!common)
        return false;
      llvm::append_range(sizes, *common);
    }
    if (!groups(sizes, first.getSizes(), first.getIn(), in) ||
        !groups(sizes, second.getSizes(), second.getOut(), out))
      return false;
    second.getInputMutable().assign(input);
    second.setSizes(sizes);
    second.setIn(in);
    second.setOut(out);
    return true;
  }

  /// Sets `result` to the numbers of `sizes` whose products are the dims that have the next
  /// `counts` of `coarse`.
  static bool groups(ArrayRef<int64_t> sizes, ArrayRef<int64_t> coarse, ArrayRef<int64_t> counts,
                     SmallVector<int64_t> &result) {
    size_t at = 0, next = 0;
    for (int64_t count : counts) {
      int64_t number = 0;
      for (int64_t factor : coarse.slice(at, size_t(count))) {
        // A factor of 1 is one of the common factors by itself.
        for (int64_t rest = factor, first = 1; first || rest > 1; first = 0, ++number) {
          if (next == sizes.size() || rest % sizes[next] != 0)
            return false;
          rest /= sizes[next++];
        }
      }
      at += size_t(count);
      result.push_back(number);
    }
    return next == sizes.size();
  }

  /// A use of a merged dim by an op, and the loop behind it.
  struct DimOfLoop {
    unsigned value, dim; // operand or result
  };

  /// Whether the dims of `tensors` that run through `loop` are that loop alone; adds them to `at`.
  static bool findDims(ArrayRef<SmallVector<FactorRule::Dim, 4>> tensors, unsigned loop,
                       SmallVector<DimOfLoop> &at) {
    for (auto [value, dims] : llvm::enumerate(tensors))
      for (auto [dim, segments] : llvm::enumerate(dims)) {
        bool has = llvm::any_of(segments, [&](const FactorRule::Product &loops) {
          return llvm::is_contained(loops, loop);
        });
        if (!has)
          continue;
        if (segments.size() != 1 || segments[0].size() != 1)
          return false;
        at.push_back({unsigned(value), unsigned(dim)});
      }
    return true;
  }

  /// Makes the op of `use` work on the dims of `sizes` instead of on their merge, dim `dim` of that
  /// operand. The merge follows behind its results.
  bool split(OpOperand &use, unsigned dim, const Sizes &sizes) {
    Operation *op = use.getOwner();
    auto reader = dyn_cast<RegroupableOpInterface>(op);
    if (!reader)
      return false;
    const FactorRule rule = cast<ShardableOpInterface>(op).getFactorRule();
    const FactorRule::Dim &segments = rule.operands[use.getOperandNumber()][dim];
    if (segments.size() != 1 || segments[0].size() != 1)
      return false;
    const unsigned loop = segments[0][0];
    SmallVector<DimOfLoop> operands, results;
    if (rule.loops[loop].kind != LoopKind::Parallel || !findDims(rule.operands, loop, operands) ||
        !findDims(rule.results, loop, results) || results.empty() ||
        !reader.canSplitLoop(loop, unsigned(sizes.size())))
      return false;
    SmallVector<std::pair<unsigned, Value>> apart;
    builder.setInsertionPoint(op);
    for (const DimOfLoop &at : operands) {
      if (llvm::any_of(apart, [&](auto &one) { return one.first == at.value; }) ||
          !canTakeApart(op->getOperand(at.value), at.dim, sizes))
        return false;
      apart.emplace_back(at.value, nullptr);
    }
    for (auto [at, one] : llvm::zip_equal(operands, apart))
      one.second = takeApart(op->getOperand(at.value), at.dim, sizes);
    reader.splitLoop(loop, unsigned(sizes.size()));
    for (auto [number, value] : apart)
      op->setOperand(number, value);
    builder.setInsertionPointAfter(op);
    for (const DimOfLoop &at : results)
      mergeAgain(op->getResult(at.value), at.dim, sizes);
    return true;
  }

  /// Whether `value` with dim `dim` apart needs no copy.
  static bool canTakeApart(Value value, unsigned dim, const Sizes &sizes) {
    if (auto reshape = value.getDefiningOp<ReshapeOp>()) {
      const SmallVector<Sizes> merged = mergedDims(reshape);
      return dim < merged.size() && merged[dim] == sizes;
    }
    auto broadcast = value.getDefiningOp<BroadcastOp>();
    return broadcast && !llvm::is_contained(broadcast.getDims(), int64_t(dim));
  }

  /// The value with dim `dim` apart. A merge of other dims stays.
  Value takeApart(Value value, unsigned dim, const Sizes &sizes) {
    const int64_t more = int64_t(sizes.size()) - 1;
    auto type = tensorType(value);
    SmallVector<int64_t> shape(type.getShape());
    shape.erase(shape.begin() + dim);
    shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
    auto apart = RankedTensorType::get(shape, type.getElementType());
    if (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
      SmallVector<int64_t> dims(broadcast.getDims());
      for (int64_t &at : dims)
        at += at > int64_t(dim) ? more : 0;
      auto made =
          builder.create<BroadcastOp>(broadcast.getLoc(), apart, broadcast.getInput(), dims);
      copyMarks(broadcast, made);
      return made;
    }
    auto reshape = value.getDefiningOp<ReshapeOp>();
    if (reshape.getInput().getType() == apart)
      return reshape.getInput();
    SmallVector<int64_t> out;
    size_t input = 0;
    for (auto [at, merged] : llvm::enumerate(mergedDims(reshape))) {
      int64_t factors = 0;
      for (size_t i = 0; i < merged.size(); ++i, ++input) {
        factors += reshape.getIn()[input];
        if (at == dim)
          out.push_back(reshape.getIn()[input]);
      }
      if (at != dim)
        out.push_back(factors);
    }
    auto made = builder.create<ReshapeOp>(reshape.getLoc(), reshape.getInput(), reshape.getSizes(),
                                          reshape.getIn(), out);
    copyMarks(reshape, made);
    work.push_back(made);
    return made;
  }

  /// Sets the type of a result whose dim is now apart, and merges it for its readers.
  void mergeAgain(Value result, unsigned dim, const Sizes &sizes) {
    auto type = tensorType(result);
    SmallVector<int64_t> shape(type.getShape()), out(shape.size(), 1);
    shape.erase(shape.begin() + dim);
    shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
    out[dim] = int64_t(sizes.size());
    result.setType(RankedTensorType::get(shape, type.getElementType()));
    const SmallVector<int64_t> in(shape.size(), 1);
    auto merge = builder.create<ReshapeOp>(result.getLoc(), result, shape, in, out);
    copyMarks(result.getDefiningOp(), merge);
    result.replaceAllUsesExcept(merge, merge);
    work.push_back(merge);
  }

  /// The new op stands for a part of the old one, under an id of its own.
  void copyMarks(Operation *from, Operation *to) {
    for (NamedAttribute attr : from->getDiscardableAttrs())
      to->setDiscardableAttr(attr.getName(), attr.getValue());
    if (StringRef id = getId(from); !id.empty())
      to->setAttr(kIdAttr, builder.getStringAttr(ids.unique(id)));
  }

  func::FuncOp model;
  OpIds ids;
  OpBuilder builder;
  std::deque<ReshapeOp> work;
};

} // namespace

void foldReshapes(func::FuncOp model) { ReshapeFolder(model).run(); }

namespace {
struct FoldReshapes : impl::FoldReshapesPassBase<FoldReshapes> {
  void runOnOperation() override { foldReshapes(getOperation()); }
};
} // namespace

} // namespace tbc

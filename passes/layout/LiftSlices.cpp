//===- LiftSlices.cpp - Slices move before splits and transposes -----------===//

#include "passes/layout/LiftSlices.h"

#include "ir/Movement.h"
#include "ir/Roles.h"
#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>
#include <optional>
#include <utility>

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_LIFTSLICESPASS
#include "passes/Passes.h.inc"

namespace {

using Sizes = SmallVector<int64_t>;

/// Whether only slices of dim `dim` read `op`, so that it has no reader when they have moved.
bool isReadBySlicesOf(Operation *op, int64_t dim) {
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    auto slice = dyn_cast<SliceOp>(user);
    return slice && int64_t(slice.getDim()) == dim;
  });
}

/// The factors of a reshape, by input dim and by result dim.
struct Factors {
  explicit Factors(ReshapeOp reshape)
      : sizes(reshape.getSizes()), in(reshape.getIn()), out(reshape.getOut()) {}
  /// Returns the number of the first factor of a dim with these counts.
  static size_t firstOf(ArrayRef<int64_t> counts, size_t dim) {
    return size_t(std::accumulate(counts.begin(), counts.begin() + ptrdiff_t(dim), int64_t(0)));
  }
  Sizes sizes, in, out;
};

class SliceLifter {
public:
  explicit SliceLifter(func::FuncOp model) : model(model), ids(model), builder(model) {}

  void run() {
    // Slices of one tensor move together, an op at a time.
    for (bool hasMoved = true; std::exchange(hasMoved, false);)
      for (SliceOp slice : SmallVector<SliceOp>(model.getOps<SliceOp>()))
        hasMoved |= lift(slice);
    for (ReshapeOp reshape : SmallVector<ReshapeOp>(model.getOps<ReshapeOp>()))
      dropUnitsEarly(reshape);
  }

private:
  /// Moves the slice before the op that makes its operand. Returns whether it did.
  bool lift(SliceOp slice) {
    Operation *maker = slice.getInput().getDefiningOp();
    const int64_t dim = int64_t(slice.getDim());
    if (!maker || !isReadBySlicesOf(maker, dim))
      return false;
    if (auto transpose = dyn_cast<TransposeOp>(maker))
      return beforeTranspose(slice, transpose);
    if (auto reshape = dyn_cast<ReshapeOp>(maker))
      return beforeSplit(slice, reshape);
    return false;
  }

  /// Makes an op before `like`, with an id after that op's.
  template <typename Op, typename... Args> Op make(Operation *like, const Args &...args) {
    builder.setInsertionPoint(like);
    auto op = builder.create<Op>(like->getLoc(), args...);
    if (StringRef id = getId(like); !id.empty())
      op->setAttr(kIdAttr, builder.getStringAttr(ids.unique(id)));
    return op;
  }

  /// Replaces `old` by `made`, and removes `old` and, if nothing else reads it, its operand's
  /// maker.
  static void replace(Operation *old, Value made) {
    Operation *maker = old->getOperand(0).getDefiningOp();
    old->getResult(0).replaceAllUsesWith(made);
    old->erase();
    if (maker && maker->use_empty())
      maker->erase();
  }

  bool beforeTranspose(SliceOp slice, TransposeOp transpose) {
    const int64_t dim = transpose.getPermutation()[slice.getDim()];
    auto first = make<SliceOp>(slice, transpose.getInput(), dim, int64_t(slice.getOffset()),
                               int64_t(slice.getSize()));
    auto second = make<TransposeOp>(slice, first.getResult(), transpose.getPermutation());
    replace(slice, second);
    return true;
  }

  bool beforeSplit(SliceOp slice, ReshapeOp reshape) {
    Factors f(reshape);
    const size_t dim = slice.getDim();
    if (f.out[dim] != 1)
      return false;
    const size_t factor = Factors::firstOf(f.out, dim);
    // The input dim that begins with this factor.
    size_t from = 0;
    for (; from < f.in.size(); ++from)
      if (f.in[from] > 0 && Factors::firstOf(f.in, from) == factor)
        break;
    if (from == f.in.size())
      return false;
    int64_t inner = 1;
    for (int64_t i = 1; i < f.in[from]; ++i)
      inner *= f.sizes[factor + size_t(i)];
    auto first =
        make<SliceOp>(slice, reshape.getInput(), int64_t(from), int64_t(slice.getOffset()) * inner,
                      int64_t(slice.getSize()) * inner);
    f.sizes[factor] = int64_t(slice.getSize());
    auto second = make<ReshapeOp>(slice, first.getResult(), f.sizes, f.in, f.out);
    replace(slice, second);
    return true;
  }

  /// Returns which dims of its operand a reshape drops, if it does nothing else.
  static std::optional<SmallVector<bool>> droppedDims(ReshapeOp reshape) {
    const Factors f(reshape);
    if (llvm::any_of(f.out, [](int64_t count) { return count != 1; }) ||
        llvm::any_of(f.in, [](int64_t count) { return count > 1; }) || f.in == f.out)
      return std::nullopt;
    SmallVector<bool> isDropped;
    for (int64_t count : f.in)
      isDropped.push_back(count == 0);
    return isDropped;
  }

  /// Drops dims before the transpose and the split that made them.
  void dropUnitsEarly(ReshapeOp reshape) {
    std::optional<SmallVector<bool>> isDropped = droppedDims(reshape);
    auto transpose = reshape.getInput().getDefiningOp<TransposeOp>();
    if (!isDropped || !transpose || !transpose->hasOneUse())
      return;
    auto split = transpose.getInput().getDefiningOp<ReshapeOp>();
    if (!split || !split->hasOneUse())
      return;
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    std::optional<Factors> f = withoutDims(split, [&](size_t dim) {
      return (*isDropped)[size_t(llvm::find(permutation, int64_t(dim)) - permutation.begin())];
    });
    if (!f)
      return;
    Sizes kept;
    for (auto [place, dim] : llvm::enumerate(permutation))
      if (!(*isDropped)[place]) {
        kept.push_back(dim);
        for (auto [other, otherDim] : llvm::enumerate(permutation))
          kept.back() -= (*isDropped)[other] && otherDim < dim;
      }
    auto first = make<ReshapeOp>(reshape, split.getInput(), f->sizes, f->in, f->out);
    auto second = make<TransposeOp>(reshape, first.getResult(), ArrayRef<int64_t>(kept));
    replace(reshape, second);
    if (split->use_empty())
      split->erase();
  }

  /// Returns the factors of `split` without some dims of its result, each of one factor of 1.
  static std::optional<Factors> withoutDims(ReshapeOp split,
                                            llvm::function_ref<bool(size_t)> isDropped) {
    Factors f(split);
    for (size_t dim = f.out.size(); dim-- > 0;) {
      if (!isDropped(dim))
        continue;
      const size_t factor = Factors::firstOf(f.out, dim);
      if (f.out[dim] != 1 || f.sizes[factor] != 1)
        return std::nullopt;
      size_t from = 0; // the input dim of the factor
      while (Factors::firstOf(f.in, from) + size_t(f.in[from]) <= factor)
        ++from;
      --f.in[from];
      f.sizes.erase(f.sizes.begin() + ptrdiff_t(factor));
      f.out.erase(f.out.begin() + ptrdiff_t(dim));
    }
    return f;
  }

  func::FuncOp model;
  OpIds ids;
  OpBuilder builder;
};

} // namespace

void liftSlices(func::FuncOp model) { SliceLifter(model).run(); }

namespace {
struct LiftSlices : impl::LiftSlicesPassBase<LiftSlices> {
  void runOnOperation() override { liftSlices(getOperation()); }
};
} // namespace

} // namespace tbc

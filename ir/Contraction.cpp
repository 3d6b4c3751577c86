//===- Contraction.cpp - Reductions, einsum, gather ------------------------===//

#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/RowSums.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVectorExtras.h"

#include <array>
#include <optional>

using namespace mlir;

namespace tbc {

//===- reductions ----------------------------------------------------------===//

static LogicalResult inferReduction(std::optional<Location> loc, Value input,
                                    ArrayRef<int64_t> dims, SmallVectorImpl<Type> &types) {
  auto type = tensorType(input);
  for (auto [i, dim] : llvm::enumerate(dims))
    if (dim < 0 || dim >= type.getRank() || (i > 0 && dim <= dims[i - 1]))
      return emitOptionalError(loc, "dims are not increasing dims of ", type);
  SmallVector<int64_t> shape;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim))
      shape.push_back(type.getDimSize(dim));
  types.push_back(RankedTensorType::get(shape, type.getElementType()));
  return success();
}

static FactorRule reductionRule(RankedTensorType input, ArrayRef<int64_t> dims, LoopKind kind) {
  FactorRule rule;
  SmallVector<unsigned, 4> all, kept;
  for (int64_t dim = 0; dim < input.getRank(); ++dim) {
    bool reduced = llvm::is_contained(dims, dim);
    all.push_back(rule.addLoop(input.getDimSize(dim), reduced ? kind : LoopKind::Parallel));
    if (!reduced)
      kept.push_back(all.back());
  }
  rule.operands.push_back(FactorRule::dims(all));
  rule.results.push_back(FactorRule::dims(kept));
  return rule;
}

#define TBC_REDUCTION(OP, KIND)                                                                    \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,  \
                                     SmallVectorImpl<Type> &types) {                               \
    return inferReduction(loc, adaptor.getInput(), adaptor.getDims(), types);                      \
  }                                                                                                \
  FactorRule OP::getFactorRule() {                                                                 \
    return reductionRule(tensorType(getInput()), getDims(), KIND);                                 \
  }                                                                                                \
  void OP::resizeLoops(ArrayRef<int64_t>) {}                                                       \
  double OP::getFlops() { return tensorType(getInput()).getNumElements(); }                        \
  KernelClass OP::getKernelClass() { return KernelClass::Reduction; }

TBC_REDUCTION(ReduceSumOp, LoopKind::Reduction)
TBC_REDUCTION(ReduceMaxOp, LoopKind::Max)
TBC_REDUCTION(StabilizerMaxOp, LoopKind::Max)

/// `value` of a reduction over `dims`, repeated to the type of its input.
static Value repeatOver(OpBuilder &builder, Location loc, Value value, RankedTensorType input,
                        ArrayRef<int64_t> dims) {
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < input.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim))
      kept.push_back(dim);
  return broadcastTo(builder, loc, value, input.getShape(), kept);
}

LogicalResult ReduceSumOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        repeatOver(builder, getLoc(), cotangents[0], tensorType(getInput()), getDims());
  return success();
}

LogicalResult ReduceMaxOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (!needed[0] || !cotangents[0])
    return success();
  Formula f{builder, getLoc()};
  auto input = tensorType(getInput());
  auto repeat = [&](Value value) { return repeatOver(builder, getLoc(), value, input, getDims()); };
  Value attains = f.compare(getInput(), repeat(getResult()), "eq");
  Value one = f.number(getInput(), 1), zero = f.number(getInput(), 0);
  Value count = f.sum(f.select(attains, one, zero), getDims());
  Value share = repeat(f.div(cotangents[0], count));
  operandCotangents[0] = f.select(attains, share, zero);
  return success();
}

//===- running_sum ---------------------------------------------------------===//

LogicalResult RunningSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                             Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto type = tensorType(adaptor.getInput());
  if (adaptor.getDim() >= uint64_t(type.getRank())) // running_sum_c1
    return emitOptionalError(loc, "sums along dim ", int64_t(adaptor.getDim()), " of ", type);
  types.push_back(type);
  return success();
}

FactorRule RunningSumOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (auto [dim, size] : llvm::enumerate(tensorType(getInput()).getShape()))
    loops.push_back(rule.addLoop(size, dim == getDim() ? LoopKind::Fixed : LoopKind::Parallel));
  rule.operands.push_back(FactorRule::dims(loops));
  rule.results.push_back(FactorRule::dims(loops));
  return rule;
}
void RunningSumOp::resizeLoops(ArrayRef<int64_t>) {}
double RunningSumOp::getFlops() { return elementwiseFlops(*this, 1); }
KernelClass RunningSumOp::getKernelClass() { return KernelClass::Reduction; }

LogicalResult RunningSumOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<RunningSumOp>(getLoc(), cotangents[0], getDim(),
                                                        getExclusive(), !getReverse());
  return success();
}

//===- einsum --------------------------------------------------------------===//

/// The size of each label, in order of first appearance; null on contradiction.
static FailureOr<llvm::MapVector<int64_t, int64_t>>
labelSizes(std::optional<Location> loc, RankedTensorType lhs, RankedTensorType rhs,
           ArrayRef<int64_t> lhsLabels, ArrayRef<int64_t> rhsLabels) {
  llvm::MapVector<int64_t, int64_t> sizes;
  for (auto [type, labels] : {std::pair(lhs, lhsLabels), std::pair(rhs, rhsLabels)}) {
    if (int64_t(labels.size()) != type.getRank()) // einsum_c1
      return emitOptionalError(loc, "has ", labels.size(), " labels for ", type);
    for (auto [i, label] : llvm::enumerate(labels)) {
      if (llvm::is_contained(labels.take_front(i), label)) // einsum_c1
        return emitOptionalError(loc, "uses label ", label, " twice in one operand");
      auto [it, isNew] = sizes.insert({label, type.getDimSize(i)});
      if (!isNew && it->second != type.getDimSize(i)) // einsum_c2
        return emitOptionalError(loc, "label ", label, " has size ", it->second,
                                 " in one operand and ", type.getDimSize(i), " in the other");
    }
  }
  return sizes;
}

LogicalResult EinsumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto lhs = tensorType(adaptor.getLhs()), rhs = tensorType(adaptor.getRhs());
  auto sizes = labelSizes(loc, lhs, rhs, adaptor.getLhsLabels(), adaptor.getRhsLabels());
  if (failed(sizes))
    return failure();
  if (lhs.getElementType() != rhs.getElementType())
    return emitOptionalError(loc, "multiplies ", lhs, " with ", rhs);
  SmallVector<int64_t> shape;
  for (int64_t label : adaptor.getOutLabels()) {
    auto it = sizes->find(label);
    if (it == sizes->end()) // einsum_c3
      return emitOptionalError(loc, "result label ", label, " is in neither operand");
    shape.push_back(it->second);
  }
  types.push_back(RankedTensorType::get(shape, lhs.getElementType()));
  return success();
}

FactorRule EinsumOp::getFactorRule() {
  FactorRule rule;
  auto sizes = *labelSizes(std::nullopt, tensorType(getLhs()), tensorType(getRhs()), getLhsLabels(),
                           getRhsLabels());
  llvm::MapVector<int64_t, unsigned> loops;
  for (auto [label, size] : sizes)
    loops[label] = rule.addLoop(
        size, llvm::is_contained(getOutLabels(), label) ? LoopKind::Parallel : LoopKind::Reduction);
  auto dims = [&](ArrayRef<int64_t> labels) {
    SmallVector<FactorRule::Dim, 4> result;
    for (int64_t label : labels)
      result.push_back(FactorRule::dim(loops[label]));
    return result;
  };
  rule.operands = {dims(getLhsLabels()), dims(getRhsLabels())};
  rule.results.push_back(dims(getOutLabels()));
  return rule;
}
void EinsumOp::resizeLoops(ArrayRef<int64_t>) {}
double EinsumOp::getFlops() {
  double product = 2;
  for (const FactorRule::Loop &loop : getFactorRule().loops)
    product *= double(loop.size);
  return product;
}
KernelClass EinsumOp::getKernelClass() { return KernelClass::Matmul; }

/// Returns the cotangent of one operand of an einsum: cotangent x other operand, with the operand's
/// labels out. The einsum summed over labels of this operand alone, so the cotangent is repeated
/// along them.
static Value einsumCotangent(OpBuilder &builder, Location loc, Value cotangent, Value other,
                             RankedTensorType type, ArrayRef<int64_t> labels,
                             ArrayRef<int64_t> otherLabels, ArrayRef<int64_t> outLabels) {
  SmallVector<int64_t> present, dims;
  for (auto [i, label] : llvm::enumerate(labels))
    if (llvm::is_contained(otherLabels, label) || llvm::is_contained(outLabels, label)) {
      present.push_back(label);
      dims.push_back(i);
    }
  Value result = builder.create<EinsumOp>(loc, cotangent, other, outLabels, otherLabels, present);
  return broadcastTo(builder, loc, result, type.getShape(), dims);
}

LogicalResult EinsumOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0])
    return success();
  if (needed[0])
    operandCotangents[0] =
        einsumCotangent(builder, getLoc(), cotangents[0], getRhs(), tensorType(getLhs()),
                        getLhsLabels(), getRhsLabels(), getOutLabels());
  if (needed[1])
    operandCotangents[1] =
        einsumCotangent(builder, getLoc(), cotangents[0], getLhs(), tensorType(getRhs()),
                        getRhsLabels(), getLhsLabels(), getOutLabels());
  return success();
}

//===- einsum: the order of dims -------------------------------------------===//

using Labels = SmallVector<int64_t, 4>;

namespace {
/// The labels of an einsum, without dims of size 1.
struct EinsumLabels {
  Labels lhs, rhs, out;

  /// Returns the products of an einsum and of its gradient. Example: bi,io->bo has the gradients
  /// bo,io->bi and bo,bi->io.
  std::array<EinsumLabels, 3> withGradient() const {
    return {*this, {out, rhs, lhs}, {out, lhs, rhs}};
  }
};

/// The loops of an einsum that no matmul covers. Labels of one role that follow each other in all
/// their tensors are one loop.
struct LoopsAroundMatmul {
  unsigned contracted = 0; ///< loops that are summed around a matmul
  unsigned independent = 0;
  /// Whether the last dim of a tensor is a batch loop, so that no matmul has unit strides.
  bool isStrided = false;

  bool isAtMost(const LoopsAroundMatmul &other) const {
    return contracted <= other.contracted && independent <= other.independent &&
           isStrided <= other.isStrided;
  }
};
} // namespace

/// Whether `second` follows `first` in `labels`, or neither is in them.
static bool follows(ArrayRef<int64_t> labels, int64_t first, int64_t second) {
  const int64_t *at = llvm::find(labels, first);
  if (at == labels.end())
    return !llvm::is_contained(labels, second);
  return std::next(at) != labels.end() && *std::next(at) == second;
}

static LoopsAroundMatmul loopsAroundMatmul(const EinsumLabels &einsum) {
  enum Role { Batch, Contracted, LhsFree, RhsFree };
  auto roleOf = [&](int64_t label) {
    return !llvm::is_contained(einsum.out, label)   ? Contracted
           : !llvm::is_contained(einsum.rhs, label) ? LhsFree
           : !llvm::is_contained(einsum.lhs, label) ? RhsFree
                                                    : Batch;
  };
  std::array<unsigned, 4> count = {};
  std::array<std::optional<int64_t>, 4> last;
  Labels all = einsum.lhs;
  llvm::copy_if(einsum.rhs, std::back_inserter(all),
                [&](int64_t label) { return !llvm::is_contained(einsum.lhs, label); });
  for (int64_t label : all) {
    Role role = roleOf(label);
    bool isMerged = last[role] && llvm::all_of(ArrayRef({einsum.lhs, einsum.rhs, einsum.out}),
                                               [&](const Labels &labels) {
                                                 return follows(labels, *last[role], label);
                                               });
    count[role] += !isMerged;
    last[role] = label;
  }
  auto beyondOne = [](unsigned loops) { return loops > 1 ? loops - 1 : 0; };
  LoopsAroundMatmul around;
  around.contracted = beyondOne(count[Contracted]);
  around.independent = count[Batch] + beyondOne(count[LhsFree]) + beyondOne(count[RhsFree]);
  for (const Labels &labels : {einsum.lhs, einsum.rhs, einsum.out})
    around.isStrided |= !labels.empty() && roleOf(labels.back()) == Batch;
  return around;
}

/// Whether the einsum `after` and its gradient have no more loops around their matmuls than those
/// of `before`. Matmul libraries take one batch loop; summed loops would round in between.
static bool isAsFast(const EinsumLabels &before, const EinsumLabels &after) {
  for (auto [old, now] : llvm::zip_equal(before.withGradient(), after.withGradient()))
    if (!loopsAroundMatmul(now).isAtMost(loopsAroundMatmul(old)))
      return false;
  return true;
}

/// Returns the labels of the input of a transpose whose result has `labels`. Example: [0, 1, 2] and
/// the permutation [2, 0, 1] give [1, 2, 0].
static Labels beforeTranspose(ArrayRef<int64_t> labels, ArrayRef<int64_t> permutation) {
  Labels result(labels.size());
  for (auto [label, dim] : llvm::zip_equal(labels, permutation))
    result[dim] = label;
  return result;
}

/// Returns the labels of the result of a transpose whose input has `labels`.
static Labels afterTranspose(ArrayRef<int64_t> labels, ArrayRef<int64_t> permutation) {
  return llvm::map_to_vector<4>(permutation, [&](int64_t dim) { return labels[dim]; });
}

static EinsumLabels labelsOf(EinsumOp op) {
  return {Labels(op.getLhsLabels()), Labels(op.getRhsLabels()), Labels(op.getOutLabels())};
}

/// Returns `labels` without those of dims of size 1, which are no loops.
static EinsumLabels withoutUnitDims(EinsumOp op, EinsumLabels labels) {
  auto sizes = *labelSizes(std::nullopt, tensorType(op.getLhs()), tensorType(op.getRhs()),
                           op.getLhsLabels(), op.getRhsLabels());
  for (Labels *list : {&labels.lhs, &labels.rhs, &labels.out})
    llvm::erase_if(*list, [&](int64_t label) { return sizes[label] == 1; });
  return labels;
}

bool EinsumOp::canAbsorbOperandTranspose(unsigned operand, ArrayRef<int64_t> permutation) {
  EinsumLabels now = labelsOf(*this), absorbed = now;
  Labels &labels = operand == 0 ? absorbed.lhs : absorbed.rhs;
  labels = beforeTranspose(labels, permutation);
  return isAsFast(withoutUnitDims(*this, now), withoutUnitDims(*this, absorbed));
}

void EinsumOp::absorbOperandTranspose(unsigned operand, ArrayRef<int64_t> permutation) {
  if (operand == 0)
    setLhsLabels(beforeTranspose(getLhsLabels(), permutation));
  else
    setRhsLabels(beforeTranspose(getRhsLabels(), permutation));
}

bool EinsumOp::canAbsorbResultTranspose(unsigned, ArrayRef<int64_t> permutation) {
  EinsumLabels now = labelsOf(*this), absorbed = now;
  absorbed.out = afterTranspose(now.out, permutation);
  return isAsFast(withoutUnitDims(*this, now), withoutUnitDims(*this, absorbed));
}

void EinsumOp::absorbResultTranspose(unsigned, ArrayRef<int64_t> permutation) {
  setOutLabels(afterTranspose(getOutLabels(), permutation));
}

/// Returns the labels with more labels behind `label`. Example: [0, 1] with [5] behind 0 gives
/// [0, 5, 1].
static Labels withMore(ArrayRef<int64_t> labels, int64_t label, ArrayRef<int64_t> more) {
  Labels result;
  for (int64_t old : labels) {
    result.push_back(old);
    if (old == label)
      llvm::append_range(result, more);
  }
  return result;
}

/// Returns the labels of the einsum with `parts` labels instead of the label of `loop`.
static EinsumLabels afterSplit(EinsumOp op, unsigned loop, unsigned parts) {
  auto sizes = *labelSizes(std::nullopt, tensorType(op.getLhs()), tensorType(op.getRhs()),
                           op.getLhsLabels(), op.getRhsLabels());
  const int64_t label = std::next(sizes.begin(), loop)->first;
  int64_t last = 0;
  for (auto [other, size] : sizes)
    last = std::max(last, other);
  Labels more;
  for (unsigned part = 1; part < parts; ++part)
    more.push_back(last + part);
  return {withMore(op.getLhsLabels(), label, more), withMore(op.getRhsLabels(), label, more),
          withMore(op.getOutLabels(), label, more)};
}

bool EinsumOp::canSplitLoop(unsigned loop, unsigned parts) {
  return isAsFast(labelsOf(*this), afterSplit(*this, loop, parts));
}

void EinsumOp::splitLoop(unsigned loop, unsigned parts) {
  EinsumLabels labels = afterSplit(*this, loop, parts);
  setLhsLabels(labels.lhs);
  setRhsLabels(labels.rhs);
  setOutLabels(labels.out);
}

bool isPlainInput(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    auto cost = dyn_cast<CostOpInterface>(op);
    bool moves = cost && op->getNumOperands() == 1 && cost.getKernelClass() == KernelClass::None;
    if (!moves && !isa<CastOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

//===- gather, scatter_add -------------------------------------------------===//

LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto table = tensorType(adaptor.getTable()), indices = tensorType(adaptor.getIndices());
  int64_t dim = adaptor.getDim();
  if (dim < 0 || dim >= table.getRank())
    return emitOptionalError(loc, "names dim ", dim, " of ", table);
  SmallVector<int64_t> shape(table.getShape().take_front(dim));
  llvm::append_range(shape, indices.getShape());
  llvm::append_range(shape, table.getShape().drop_front(dim + 1));
  types.push_back(RankedTensorType::get(shape, table.getElementType()));
  return success();
}

/// The loops of a gather or its transpose: the table's other dims and the dims of the indices. This
/// rule does not shard the gathered dim, because a row may be on any rank.
static void gatherRule(FactorRule &rule, RankedTensorType table, RankedTensorType indices,
                       int64_t dim, LoopKind indexKind, SmallVector<FactorRule::Dim, 4> &tableDims,
                       SmallVector<FactorRule::Dim, 4> &indexDims,
                       SmallVector<FactorRule::Dim, 4> &rowDims) {
  for (int64_t i = 0; i < table.getRank(); ++i) {
    unsigned loop =
        rule.addLoop(table.getDimSize(i), i == dim ? LoopKind::Fixed : LoopKind::Parallel);
    tableDims.push_back(FactorRule::dim(loop));
    if (i != dim) {
      rowDims.push_back(FactorRule::dim(loop));
      continue;
    }
    for (int64_t size : indices.getShape()) {
      indexDims.push_back(FactorRule::dim(rule.addLoop(size, indexKind)));
      rowDims.push_back(indexDims.back());
    }
  }
}

FactorRule GatherOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> table, indices, rows;
  gatherRule(rule, tensorType(getTable()), tensorType(getIndices()), getDim(), LoopKind::Parallel,
             table, indices, rows);
  rule.operands = {table, indices};
  rule.results.push_back(rows);
  return rule;
}
void GatherOp::resizeLoops(ArrayRef<int64_t>) {}
double GatherOp::getFlops() { return 0; }
KernelClass GatherOp::getKernelClass() { return KernelClass::Gather; }

LogicalResult GatherOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<ScatterAddOp>(getLoc(), getTable().getType(),
                                                        cotangents[0], getIndices(), getDim());
  return success();
}

LogicalResult ScatterAddOp::verify() {
  auto table = getType(), updates = tensorType(getUpdates()), indices = tensorType(getIndices());
  if (int64_t(getDim()) < 0 || int64_t(getDim()) >= table.getRank())
    return emitOpError() << "names dim " << getDim() << " of " << table;
  SmallVector<int64_t> shape(table.getShape().take_front(getDim()));
  llvm::append_range(shape, indices.getShape());
  llvm::append_range(shape, table.getShape().drop_front(getDim() + 1));
  if (updates.getShape() != ArrayRef<int64_t>(shape) ||
      updates.getElementType() != table.getElementType())
    return emitOpError() << "adds " << updates << " at " << indices << " into " << table;
  return success();
}

FactorRule ScatterAddOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> table, indices, rows;
  gatherRule(rule, getType(), tensorType(getIndices()), getDim(), LoopKind::Reduction, table,
             indices, rows);
  rule.operands = {rows, indices};
  rule.results.push_back(table);
  return rule;
}
void ScatterAddOp::resizeLoops(ArrayRef<int64_t>) {}
double ScatterAddOp::getFlops() { return tensorType(getUpdates()).getNumElements(); }
KernelClass ScatterAddOp::getKernelClass() { return KernelClass::Gather; }

/// Returns a function of the local shapes of updates and indices; none for integers, which have no
/// kernel.
template <typename Fn>
static Fn ofRowSums(ScatterAddOp op, int64_t (RowSumSizes::*number)() const) {
  if (!isa<FloatType>(tensorType(op.getUpdates()).getElementType()))
    return nullptr;
  const auto dim = size_t(op.getDim());
  const int64_t rows = tensorType(op.getResult()).getDimSize(op.getDim());
  return [dim, rows, number](const std::vector<std::vector<int64_t>> &shapes) {
    const std::vector<int64_t> &updates = shapes[0], &indices = shapes[1];
    RowSumSizes sizes;
    sizes.rows = rows;
    for (size_t i = 0; i < updates.size(); ++i)
      if (i < dim || i >= dim + indices.size())
        (i < dim ? sizes.outer : sizes.width) *= updates[i];
      else
        sizes.count *= updates[i];
    return (sizes.*number)();
  };
}
WorkspaceFn scatterAddWorkspace(ScatterAddOp op) {
  return ofRowSums<WorkspaceFn>(op, &RowSumSizes::workspaceBytes);
}
LaunchesFn scatterAddLaunches(ScatterAddOp op) {
  return ofRowSums<LaunchesFn>(op, &RowSumSizes::launches);
}

LogicalResult ScatterAddOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<GatherOp>(getLoc(), cotangents[0], getIndices(), getDim());
  return success();
}

} // namespace tbc

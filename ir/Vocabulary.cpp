//===- Vocabulary.cpp - Ops over numbered rows and classes -----------------===//

#include "ir/Vocabulary.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/RowSums.h"

using namespace mlir;

namespace tbc {

VocabularyNumbers numberVocabulary(OpBuilder &builder, Location loc, int64_t size) {
  Formula f{builder, loc};
  Value numbers = f.make<IotaOp>(RankedTensorType::get({size}, builder.getI64Type()), 0);
  return {numbers, f.make<ReduceMaxOp>(numbers, ArrayRef<int64_t>{0})};
}

int64_t vocabularySize(Value numbers) {
  int64_t size = tensorType(numbers).getDimSize(0);
  auto marked = numbers.getDefiningOp<SelectOp>();
  auto compare = marked ? marked.getPred().getDefiningOp<CompareOp>() : CompareOp();
  Operation *limit = compare ? compare.getRhs().getDefiningOp() : nullptr;
  while (isa_and_nonnull<BroadcastOp>(limit))
    limit = limit->getOperand(0).getDefiningOp();
  if (auto constant = dyn_cast_or_null<ConstantOp>(limit))
    if (auto dense = dyn_cast<DenseIntElementsAttr>(constant.getValue()); dense && dense.isSplat())
      return std::min(size, dense.getSplatValue<APInt>().getSExtValue());
  return size;
}

/// Returns true if `numbers` and `last` are the numbers of a vocabulary of `size`.
static bool isNumbering(Value numbers, Value last, int64_t size) {
  return tensorType(numbers).getShape() == ArrayRef<int64_t>(size) &&
         tensorType(last).getRank() == 0;
}

//===- embedding -----------------------------------------------------------===//

/// Returns the shape of rows of `table` at the positions of `indices`.
static SmallVector<int64_t> embeddedShape(RankedTensorType table, RankedTensorType indices) {
  SmallVector<int64_t> shape(indices.getShape());
  llvm::append_range(shape, table.getShape().drop_front());
  return shape;
}

namespace {

struct EmbeddingDims {
  EmbeddingDims(FactorRule &rule, RankedTensorType table, RankedTensorType indices,
                LoopKind vocabularyKind, LoopKind indexKind) {
    numbers = FactorRule::dims(rule.addLoop(table.getDimSize(0), vocabularyKind));
    for (int64_t size : indices.getShape())
      this->indices.push_back(FactorRule::dim(rule.addLoop(size, indexKind)));
    this->table = numbers;
    rows = this->indices;
    for (int64_t size : table.getShape().drop_front()) {
      this->table.push_back(FactorRule::dim(rule.addLoop(size)));
      rows.push_back(this->table.back());
    }
  }
  SmallVector<FactorRule::Dim, 4> table, indices, numbers, rows;
};

} // namespace

LogicalResult EmbeddingOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto table = tensorType(adaptor.getTable());
  if (table.getRank() == 0 || !isNumbering(adaptor.getNumbers(), adaptor.getLast(),
                                           table.getDimSize(0))) // embedding_c1
    return emitOptionalError(loc, "numbers the rows of ", table, " by ",
                             adaptor.getNumbers().getType(), " up to ",
                             adaptor.getLast().getType());
  types.push_back(RankedTensorType::get(embeddedShape(table, tensorType(adaptor.getIndices())),
                                        table.getElementType()));
  return success();
}

FactorRule EmbeddingOp::getFactorRule() {
  FactorRule rule;
  EmbeddingDims dims(rule, tensorType(getTable()), tensorType(getIndices()), LoopKind::Reduction,
                     LoopKind::Parallel);
  rule.operands = {dims.table, dims.indices, dims.numbers, {}};
  rule.results.push_back(dims.rows);
  return rule;
}
void EmbeddingOp::resizeLoops(ArrayRef<int64_t>) {}
double EmbeddingOp::getFlops() { return 0; }
KernelClass EmbeddingOp::getKernelClass() { return KernelClass::Gather; }

LogicalResult EmbeddingOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<EmbeddingGradOp>(
        getLoc(), getTable().getType(), cotangents[0], getIndices(), getNumbers(), getLast());
  return success();
}

LogicalResult EmbeddingGradOp::verify() {
  auto table = getType(), updates = tensorType(getUpdates());
  if (table.getRank() == 0 || !isNumbering(getNumbers(), getLast(), table.getDimSize(0)) ||
      updates.getShape() != ArrayRef<int64_t>(embeddedShape(table, tensorType(getIndices()))) ||
      updates.getElementType() != table.getElementType()) // embedding_grad_c1
    return emitOpError() << "adds " << updates << " at " << getIndices().getType() << " into "
                         << table << " numbered by " << getNumbers().getType();
  return success();
}

FactorRule EmbeddingGradOp::getFactorRule() {
  FactorRule rule;
  EmbeddingDims dims(rule, getType(), tensorType(getIndices()), LoopKind::Parallel,
                     LoopKind::Reduction);
  rule.operands = {dims.rows, dims.indices, dims.numbers, {}};
  rule.results.push_back(dims.table);
  return rule;
}
void EmbeddingGradOp::resizeLoops(ArrayRef<int64_t>) {}
double EmbeddingGradOp::getFlops() { return tensorType(getUpdates()).getNumElements(); }
KernelClass EmbeddingGradOp::getKernelClass() { return KernelClass::Gather; }

/// Returns the sizes of embedding_grad by the local shapes of updates, indices and numbers.
static RowSumSizes embeddingGradSizes(const std::vector<std::vector<int64_t>> &shapes) {
  constexpr size_t updates = 0, indices = 1, numbers = 2;
  auto product = [&](size_t operand) {
    int64_t elements = 1;
    for (int64_t size : shapes[operand])
      elements *= size;
    return elements;
  };
  RowSumSizes sizes;
  sizes.rows = product(numbers);
  sizes.count = product(indices);
  sizes.width = sizes.count > 0 ? product(updates) / sizes.count : 0;
  return sizes;
}
WorkspaceFn embeddingGradWorkspace() {
  return [](const std::vector<std::vector<int64_t>> &shapes) {
    return embeddingGradSizes(shapes).workspaceBytes();
  };
}
LaunchesFn embeddingGradLaunches() {
  return [](const std::vector<std::vector<int64_t>> &shapes) {
    return embeddingGradSizes(shapes).launches();
  };
}

//===- class_sums ----------------------------------------------------------===//

namespace {

struct ClassDims {
  ClassDims(FactorRule &rule, RankedTensorType type, LoopKind vocabularyKind) {
    for (int64_t size : type.getShape().drop_back())
      rows.push_back(FactorRule::dim(rule.addLoop(size)));
    numbers = FactorRule::dims(rule.addLoop(type.getShape().back(), vocabularyKind));
    logits = rows;
    logits.push_back(numbers[0]);
  }
  SmallVector<FactorRule::Dim, 4> logits, rows, numbers;
};

} // namespace

LogicalResult ClassMaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto logits = tensorType(adaptor.getLogits());
  if (logits.getRank() < 1 ||
      tensorType(adaptor.getNumbers()).getShape() != logits.getShape().take_back()) // class_max_c1
    return emitOptionalError(loc, "takes the maximum of ", logits, " numbered by ",
                             adaptor.getNumbers().getType());
  types.push_back(statisticType(logits, {logits.getRank() - 1}));
  return success();
}

FactorRule ClassMaxOp::getFactorRule() {
  FactorRule rule;
  ClassDims dims(rule, tensorType(getLogits()), LoopKind::Max);
  rule.operands = {dims.logits, dims.numbers};
  rule.results = {dims.rows};
  return rule;
}
void ClassMaxOp::resizeLoops(ArrayRef<int64_t>) {}
double ClassMaxOp::getFlops() { return double(tensorType(getLogits()).getNumElements()); }
KernelClass ClassMaxOp::getKernelClass() { return KernelClass::Reduction; }

template <typename Adaptor>
static LogicalResult inferClassSums(std::optional<Location> loc, Adaptor adaptor,
                                    SmallVectorImpl<Type> &types) {
  auto logits = tensorType(adaptor.getLogits());
  auto bad = [&] {
    return emitOptionalError(loc, "sums ", logits, " less ", adaptor.getMaximum().getType(), " at ",
                             adaptor.getLabels().getType(), " numbered by ",
                             adaptor.getNumbers().getType());
  };
  if (logits.getRank() < 1)
    return bad();
  RankedTensorType row = statisticType(logits, {logits.getRank() - 1});
  if (adaptor.getMaximum().getType() != row ||
      tensorType(adaptor.getLabels()).getShape() != row.getShape() ||
      !isNumbering(adaptor.getNumbers(), adaptor.getLast(),
                   logits.getShape().back())) // class_sums_c1
    return bad();
  types.assign(2, row);
  return success();
}

LogicalResult ClassSumsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferClassSums(loc, adaptor, types);
}

FactorRule ClassSumsOp::getFactorRule() {
  FactorRule rule;
  ClassDims dims(rule, tensorType(getLogits()), LoopKind::Reduction);
  rule.operands = {dims.logits, dims.rows, dims.rows, dims.numbers, {}};
  rule.results = {dims.rows, dims.rows};
  return rule;
}
void ClassSumsOp::resizeLoops(ArrayRef<int64_t>) {}
double ClassSumsOp::getFlops() { return 5.0 * double(tensorType(getLogits()).getNumElements()); }
KernelClass ClassSumsOp::getKernelClass() { return KernelClass::Reduction; }

LogicalResult ClassSumsOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (!needed[0] || (!cotangents[0] && !cotangents[1]))
    return success();
  Formula f{builder, getLoc()};
  auto orZero = [&](Value cotangent) {
    return cotangent ? cotangent : f.number(getDenominator(), 0);
  };
  operandCotangents[0] = builder.create<ClassSumsGradOp>(
      getLoc(), getLogits(), getMaximum(), getLabels(), getNumbers(), getLast(),
      orZero(cotangents[0]), orZero(cotangents[1]), getIgnoreIndexAttr(), getLabelWeightAttr(),
      getClassWeightAttr());
  return success();
}

LogicalResult ClassSumsGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  SmallVector<Type> sums;
  if (failed(inferClassSums(loc, adaptor, sums)))
    return failure();
  for (Value cotangent : {adaptor.getDenominatorCotangent(), adaptor.getTargetCotangent()})
    if (cotangent.getType() != sums[0]) // class_sums_grad_c1
      return emitOptionalError(loc, "has a cotangent of type ", cotangent.getType(), ", expected ",
                               sums[0]);
  types.push_back(adaptor.getLogits().getType());
  return success();
}

FactorRule ClassSumsGradOp::getFactorRule() {
  FactorRule rule;
  ClassDims dims(rule, tensorType(getLogits()), LoopKind::Parallel);
  rule.operands = {dims.logits, dims.rows, dims.rows, dims.numbers, {}, dims.rows, dims.rows};
  rule.results = {dims.logits};
  return rule;
}
void ClassSumsGradOp::resizeLoops(ArrayRef<int64_t>) {}
double ClassSumsGradOp::getFlops() {
  return 5.0 * double(tensorType(getLogits()).getNumElements());
}
KernelClass ClassSumsGradOp::getKernelClass() { return KernelClass::Elementwise; }

} // namespace tbc

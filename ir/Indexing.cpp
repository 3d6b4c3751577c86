//===- Indexing.cpp - Sorting, and elements chosen one by one --------------===//

#include "ir/Indexing.h"

using namespace mlir;

namespace tbc {

/// Whether `type` has the shape of `like`, dim `dim` aside.
static bool agreesBeside(RankedTensorType type, RankedTensorType like, int64_t dim) {
  if (type.getRank() != like.getRank())
    return false;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (i != dim && type.getDimSize(i) != like.getDimSize(i))
      return false;
  return true;
}

/// The rule of an op between a table and the elements chosen from it along `dim`. This dim of the
/// table is not sharded (an element may be on any rank); the other dims are parallel.
static void choiceRule(FactorRule &rule, RankedTensorType table, int64_t chosen,
                       LoopKind chosenKind, int64_t dim, SmallVector<FactorRule::Dim, 4> &tableDims,
                       SmallVector<FactorRule::Dim, 4> &chosenDims) {
  for (int64_t i = 0; i < table.getRank(); ++i) {
    unsigned loop =
        rule.addLoop(table.getDimSize(i), i == dim ? LoopKind::Fixed : LoopKind::Parallel);
    tableDims.push_back(FactorRule::dim(loop));
    chosenDims.push_back(i == dim ? FactorRule::dim(rule.addLoop(chosen, chosenKind))
                                  : tableDims.back());
  }
}

//===- topk ----------------------------------------------------------------===//

LogicalResult TopKOp::verify() {
  auto input = tensorType(getInput()), values = tensorType(getValues());
  int64_t dim = getDim();
  if (dim < 0 || dim >= input.getRank()) // topk_c1
    return emitOpError() << "names dim " << dim << " of " << input;
  int64_t k = values.getRank() == input.getRank() ? values.getDimSize(dim) : 0;
  if (!agreesBeside(values, input, dim) || k < 1 || k > input.getDimSize(dim) ||
      tensorType(getIndices()).getShape() != values.getShape() ||
      values.getElementType() != input.getElementType()) // topk_c2
    return emitOpError() << "takes " << values << " and " << getIndices().getType() << " from dim "
                         << dim << " of " << input;
  return success();
}

FactorRule TopKOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> table, chosen;
  choiceRule(rule, tensorType(getInput()), tensorType(getValues()).getDimSize(getDim()),
             LoopKind::Fixed, getDim(), table, chosen);
  rule.operands.push_back(table);
  rule.results = {chosen, chosen};
  return rule;
}
void TopKOp::resizeLoops(ArrayRef<int64_t>) {}
double TopKOp::getFlops() { return tensorType(getInput()).getNumElements(); }
KernelClass TopKOp::getKernelClass() { return KernelClass::Reduction; }

LogicalResult TopKOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                               ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<ScatterElementsAddOp>(
        getLoc(), getInput().getType(), cotangents[0], getIndices(), getDim());
  return success();
}

//===- gather_elements, scatter_elements_add -------------------------------===//

LogicalResult GatherElementsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto table = tensorType(adaptor.getTable()), indices = tensorType(adaptor.getIndices());
  int64_t dim = adaptor.getDim();
  if (dim < 0 || dim >= table.getRank() || !agreesBeside(indices, table, dim)) // gather_elements_c1
    return emitOptionalError(loc, "chooses ", indices, " along dim ", dim, " of ", table);
  types.push_back(RankedTensorType::get(indices.getShape(), table.getElementType()));
  return success();
}

FactorRule GatherElementsOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> table, chosen;
  choiceRule(rule, tensorType(getTable()), getType().getDimSize(getDim()), LoopKind::Parallel,
             getDim(), table, chosen);
  rule.operands = {table, chosen};
  rule.results.push_back(chosen);
  return rule;
}
void GatherElementsOp::resizeLoops(ArrayRef<int64_t>) {}
double GatherElementsOp::getFlops() { return 0; }
KernelClass GatherElementsOp::getKernelClass() { return KernelClass::Gather; }

LogicalResult GatherElementsOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                         ArrayRef<bool> needed,
                                         SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<ScatterElementsAddOp>(
        getLoc(), getTable().getType(), cotangents[0], getIndices(), getDim());
  return success();
}

LogicalResult ScatterElementsAddOp::verify() {
  auto table = getType(), updates = tensorType(getUpdates()), indices = tensorType(getIndices());
  int64_t dim = getDim();
  if (dim < 0 || dim >= table.getRank() || !agreesBeside(updates, table, dim) ||
      updates.getShape() != indices.getShape() ||
      updates.getElementType() != table.getElementType()) // scatter_elements_add_c1, _c2
    return emitOpError() << "adds " << updates << " at " << indices << " along dim " << dim
                         << " of " << table;
  return success();
}

FactorRule ScatterElementsAddOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> table, chosen;
  choiceRule(rule, getType(), tensorType(getUpdates()).getDimSize(getDim()), LoopKind::Reduction,
             getDim(), table, chosen);
  rule.operands = {chosen, chosen};
  rule.results.push_back(table);
  return rule;
}
void ScatterElementsAddOp::resizeLoops(ArrayRef<int64_t>) {}
double ScatterElementsAddOp::getFlops() { return tensorType(getUpdates()).getNumElements(); }
KernelClass ScatterElementsAddOp::getKernelClass() { return KernelClass::Gather; }

LogicalResult ScatterElementsAddOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                             ArrayRef<bool> needed,
                                             SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<GatherElementsOp>(getLoc(), cotangents[0], getIndices(), getDim());
  return success();
}

} // namespace tbc

//===- Movement.cpp - Ops that move, make or repeat elements ---------------===//

#include "ir/Movement.h"
#include "ir/Contraction.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace mlir;

namespace tbc {

/// Checks that `dim` is a dim of `type`.
static LogicalResult checkDim(std::optional<Location> loc, int64_t dim, RankedTensorType type) {
  if (dim >= 0 && dim < type.getRank())
    return success();
  return emitOptionalError(loc, "names dim ", dim, " of ", type);
}

/// One parallel loop per dim of `shape`.
static SmallVector<unsigned, 4> addLoops(FactorRule &rule, ArrayRef<int64_t> shape) {
  SmallVector<unsigned, 4> loops;
  for (int64_t size : shape)
    loops.push_back(rule.addLoop(size));
  return loops;
}

/// Whether `dim` is the last one of a tensor like this.
static bool isLastDim(int64_t dim, Value tensor) { return dim + 1 == tensorType(tensor).getRank(); }

ColumnUse columnsOfSlice(SliceOp op) {
  if (!isLastDim(int64_t(op.getDim()), op.getResult()))
    return {};
  return {ColumnUse::Kind::Cuts, int64_t(op.getOffset())};
}

ColumnUse columnsOfConcat(ConcatOp op) {
  if (!isLastDim(int64_t(op.getDim()), op.getResult()))
    return {};
  return {ColumnUse::Kind::Joins};
}

//===- broadcast -----------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  auto input = tensorType(getInput()), result = getType();
  if (int64_t(getDims().size()) != input.getRank()) // broadcast_c1
    return emitOpError() << "has " << getDims().size() << " entries in dims for " << input;
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    if (dim < 0 || dim >= result.getRank() || (i > 0 && dim <= getDims()[i - 1])) // broadcast_c1
      return emitOpError() << "maps input dim " << i << " to dim " << dim
                           << ", which is not increasing within " << result;
    if (input.getDimSize(i) != result.getDimSize(dim)) // broadcast_c2
      return emitOpError() << "maps input dim " << i << " of size " << input.getDimSize(i)
                           << " to a dim of size " << result.getDimSize(dim);
  }
  if (input.getElementType() != result.getElementType()) // broadcast_c2
    return emitOpError() << "changes the element type from " << input << " to " << result;
  return success();
}

FactorRule BroadcastOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, getType().getShape());
  SmallVector<unsigned, 4> inputLoops;
  for (int64_t dim : getDims())
    inputLoops.push_back(loops[dim]);
  rule.operands.push_back(FactorRule::dims(inputLoops));
  rule.results.push_back(FactorRule::dims(loops));
  return rule;
}
void BroadcastOp::resizeLoops(ArrayRef<int64_t>) {}
double BroadcastOp::getFlops() { return 0; }
// Fused into its users.
KernelClass BroadcastOp::getKernelClass() { return KernelClass::None; }

LogicalResult BroadcastOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (!needed[0] || !cotangents[0])
    return success();
  SmallVector<int64_t> added;
  for (int64_t dim = 0; dim < getType().getRank(); ++dim)
    if (!llvm::is_contained(getDims(), dim))
      added.push_back(dim);
  operandCotangents[0] =
      added.empty() ? cotangents[0]
                    : builder.create<ReduceSumOp>(getLoc(), cotangents[0], added).getResult();
  return success();
}

//===- transpose -----------------------------------------------------------===//

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto input = tensorType(adaptor.getInput());
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  SmallVector<int64_t> sorted(permutation), shape;
  llvm::sort(sorted);
  SmallVector<int64_t> identity(input.getRank());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity)
    return emitOptionalError(loc, "permutation is not one of the dims of ", input);
  for (int64_t dim : permutation)
    shape.push_back(input.getDimSize(dim));
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

FactorRule TransposeOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, tensorType(getInput()).getShape());
  SmallVector<unsigned, 4> permuted;
  for (int64_t dim : getPermutation())
    permuted.push_back(loops[dim]);
  rule.operands.push_back(FactorRule::dims(loops));
  rule.results.push_back(FactorRule::dims(permuted));
  return rule;
}
void TransposeOp::resizeLoops(ArrayRef<int64_t>) {}
double TransposeOp::getFlops() { return 0; }
// Matmul libraries and fused kernels read transposed operands in place.
KernelClass TransposeOp::getKernelClass() { return KernelClass::None; }

LogicalResult TransposeOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (!needed[0] || !cotangents[0])
    return success();
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, dim] : llvm::enumerate(getPermutation()))
    inverse[dim] = i;
  operandCotangents[0] = builder.create<TransposeOp>(getLoc(), cotangents[0], inverse);
  return success();
}

//===- reshape -------------------------------------------------------------===//

LogicalResult ReshapeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto input = tensorType(adaptor.getInput());
  ArrayRef<int64_t> sizes = adaptor.getSizes(), in = adaptor.getIn(), out = adaptor.getOut();
  auto negative = [](int64_t n) { return n < 0; };
  int64_t inSum = std::accumulate(in.begin(), in.end(), int64_t(0));
  int64_t outSum = std::accumulate(out.begin(), out.end(), int64_t(0));
  if (llvm::any_of(in, negative) || llvm::any_of(out, negative) ||
      int64_t(in.size()) != input.getRank() || inSum != int64_t(sizes.size()) ||
      outSum != int64_t(sizes.size())) // reshape_c1
    return emitOptionalError(loc, "in and out do not each group the ", sizes.size(), " factors of ",
                             input);
  int64_t next = 0;
  for (auto [dim, count] : llvm::enumerate(in)) {
    int64_t product = 1;
    for (int64_t i = 0; i < count; ++i)
      product *= sizes[next++];
    if (product != input.getDimSize(dim)) // reshape_c2
      return emitOptionalError(loc, "factors of input dim ", dim, " multiply to ", product,
                               ", not ", input.getDimSize(dim));
  }
  SmallVector<int64_t> shape;
  next = 0;
  for (int64_t count : out) {
    int64_t product = 1;
    for (int64_t i = 0; i < count; ++i)
      product *= sizes[next++];
    shape.push_back(product);
  }
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

FactorRule ReshapeOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, getSizes());
  auto group = [&](ArrayRef<int64_t> counts) {
    SmallVector<FactorRule::Dim, 4> dims;
    size_t next = 0;
    for (int64_t count : counts) {
      dims.push_back(FactorRule::dim(ArrayRef<unsigned>(loops).slice(next, count)));
      next += count;
    }
    return dims;
  };
  rule.operands.push_back(group(getIn()));
  rule.results.push_back(group(getOut()));
  return rule;
}
void ReshapeOp::resizeLoops(ArrayRef<int64_t> sizes) { setSizes(sizes); }
double ReshapeOp::getFlops() { return 0; }
KernelClass ReshapeOp::getKernelClass() { return KernelClass::None; }

LogicalResult ReshapeOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<ReshapeOp>(getLoc(), cotangents[0], getSizes(), getOut(), getIn());
  return success();
}

//===- slice, pad, concat --------------------------------------------------===//

/// The rule of an op between a tensor `part` and a tensor `whole`: along `dim`, `whole` has `low`
/// more elements before it and `high` behind it. Loops: those of the part, then low, then high.
static void windowRule(FactorRule &rule, RankedTensorType part, int64_t dim, int64_t low,
                       int64_t high, SmallVector<FactorRule::Dim, 4> &partDims,
                       SmallVector<FactorRule::Dim, 4> &wholeDims) {
  auto loops = addLoops(rule, part.getShape());
  partDims = wholeDims = FactorRule::dims(loops);
  unsigned before = rule.addLoop(low), behind = rule.addLoop(high);
  FactorRule::Dim whole;
  if (low > 0)
    whole.push_back({before});
  whole.push_back({loops[dim]});
  if (high > 0)
    whole.push_back({behind});
  wholeDims[dim] = whole;
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  auto input = tensorType(adaptor.getInput());
  int64_t dim = adaptor.getDim(), offset = adaptor.getOffset(), size = adaptor.getSize();
  if (failed(checkDim(loc, dim, input)))
    return failure();
  if (offset < 0 || size < 0 || offset > input.getDimSize(dim) - size)
    return emitOptionalError(loc, "takes elements ", offset, " to ", offset + size, " of dim ", dim,
                             " of ", input);
  SmallVector<int64_t> shape(input.getShape());
  shape[dim] = size;
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

FactorRule SliceOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> part, whole;
  int64_t high = tensorType(getInput()).getDimSize(getDim()) - getOffset() - getSize();
  windowRule(rule, getType(), getDim(), getOffset(), high, part, whole);
  rule.operands.push_back(whole);
  rule.results.push_back(part);
  return rule;
}
void SliceOp::resizeLoops(ArrayRef<int64_t> sizes) {
  setSize(sizes[getDim()]);
  setOffset(sizes[sizes.size() - 2]);
}
double SliceOp::getFlops() { return 0; }
KernelClass SliceOp::getKernelClass() { return KernelClass::None; }

LogicalResult SliceOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (!needed[0] || !cotangents[0])
    return success();
  int64_t high = tensorType(getInput()).getDimSize(getDim()) - getOffset() - getSize();
  operandCotangents[0] =
      builder.create<PadOp>(getLoc(), cotangents[0], getDim(), getOffset(), high);
  return success();
}

LogicalResult PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  auto input = tensorType(adaptor.getInput());
  int64_t low = adaptor.getLow(), high = adaptor.getHigh(), dim = adaptor.getDim();
  if (failed(checkDim(loc, dim, input)))
    return failure();
  if (low < 0 || high < 0)
    return emitOptionalError(loc, "pads by a negative amount (", low, ", ", high, ")");
  SmallVector<int64_t> shape(input.getShape());
  shape[dim] += low + high;
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

FactorRule PadOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> part, whole;
  windowRule(rule, tensorType(getInput()), getDim(), getLow(), getHigh(), part, whole);
  rule.operands.push_back(part);
  rule.results.push_back(whole);
  return rule;
}
void PadOp::resizeLoops(ArrayRef<int64_t> sizes) {
  setLow(sizes[sizes.size() - 2]);
  setHigh(sizes[sizes.size() - 1]);
}
double PadOp::getFlops() { return 0; }
KernelClass PadOp::getKernelClass() { return KernelClass::Elementwise; }

LogicalResult PadOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents, ArrayRef<bool> needed,
                              SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<SliceOp>(getLoc(), cotangents[0], getDim(), getLow(),
                                                   tensorType(getInput()).getDimSize(getDim()));
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (adaptor.getInputs().empty())
    return emitOptionalError(loc, "has no inputs");
  auto first = tensorType(adaptor.getInputs()[0]);
  int64_t dim = adaptor.getDim();
  if (failed(checkDim(loc, dim, first)))
    return failure();
  SmallVector<int64_t> shape(first.getShape());
  shape[dim] = 0;
  for (Value input : adaptor.getInputs()) {
    auto type = tensorType(input);
    bool sameRank = type.getRank() == first.getRank();
    for (int64_t i = 0; sameRank && i < type.getRank(); ++i)
      sameRank = i == dim || type.getDimSize(i) == first.getDimSize(i);
    if (!sameRank || type.getElementType() != first.getElementType())
      return emitOptionalError(loc, "joins ", type, " to ", first, " along dim ", dim);
    shape[dim] += type.getDimSize(dim);
  }
  types.push_back(RankedTensorType::get(shape, first.getElementType()));
  return success();
}

FactorRule ConcatOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, getType().getShape());
  SmallVector<FactorRule::Dim, 4> result = FactorRule::dims(loops);
  // The loop of the joined dim is replaced by one per input.
  rule.loops[loops[getDim()]].size = 1;
  FactorRule::Dim joined;
  for (Value input : getInputs()) {
    SmallVector<FactorRule::Dim, 4> dims = FactorRule::dims(loops);
    unsigned loop = rule.addLoop(tensorType(input).getDimSize(getDim()));
    dims[getDim()] = FactorRule::dim(loop);
    joined.push_back({loop});
    rule.operands.push_back(dims);
  }
  result[getDim()] = joined;
  rule.results.push_back(result);
  return rule;
}
void ConcatOp::resizeLoops(ArrayRef<int64_t>) {}
double ConcatOp::getFlops() { return 0; }
KernelClass ConcatOp::getKernelClass() { return KernelClass::Elementwise; }

LogicalResult ConcatOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0])
    return success();
  int64_t offset = 0;
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    int64_t size = tensorType(input).getDimSize(getDim());
    if (needed[i])
      operandCotangents[i] =
          builder.create<SliceOp>(getLoc(), cotangents[0], getDim(), offset, size);
    offset += size;
  }
  return success();
}

//===- generators ----------------------------------------------------------===//

LogicalResult IotaOp::verify() { return checkDim(getLoc(), getDim(), getType()); }

FactorRule IotaOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, getType().getShape());
  // A shard of it would need its offset, so the whole is made and sliced.
  rule.loops[loops[getDim()]].kind = LoopKind::Fixed;
  rule.results.push_back(FactorRule::dims(loops));
  return rule;
}
void IotaOp::resizeLoops(ArrayRef<int64_t>) {}
double IotaOp::getFlops() { return 0; }
KernelClass IotaOp::getKernelClass() { return KernelClass::None; }

LogicalResult ConstantOp::verify() {
  if (getValue().getShapedType() != getType())
    return emitOpError() << "has a value of type " << getValue().getShapedType()
                         << " for a result of type " << getType();
  return success();
}

FactorRule ConstantOp::getFactorRule() {
  FactorRule rule;
  auto loops = addLoops(rule, getType().getShape());
  if (!getValue().isSplat())
    for (FactorRule::Loop &loop : rule.loops)
      loop.kind = LoopKind::Fixed;
  rule.results.push_back(FactorRule::dims(loops));
  return rule;
}
void ConstantOp::resizeLoops(ArrayRef<int64_t> sizes) {
  auto dense = dyn_cast<DenseElementsAttr>(getValue());
  if (dense && dense.isSplat())
    setValueAttr(dense.resizeSplat(RankedTensorType::get(sizes, dense.getElementType())));
}
double ConstantOp::getFlops() { return 0; }
KernelClass ConstantOp::getKernelClass() { return KernelClass::None; }

FactorRule FactorSizeOp::getFactorRule() {
  FactorRule rule;
  rule.results.push_back({});
  return rule;
}
void FactorSizeOp::resizeLoops(ArrayRef<int64_t>) {}
double FactorSizeOp::getFlops() { return 0; }
KernelClass FactorSizeOp::getKernelClass() { return KernelClass::None; }

} // namespace tbc

//===- Formula.h - Formulas for gradients and decompositions ---------------===//

#ifndef TBC_IR_FORMULA_H
#define TBC_IR_FORMULA_H

#include "ir/Contraction.h"
#include "ir/Elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc {

/// The element type in which a composite computes: f64 stays, every other float becomes f32.
inline mlir::Type wideElementType(mlir::RankedTensorType type) {
  mlir::Type element = type.getElementType();
  return element.isF64() ? element : mlir::Float32Type::get(type.getContext());
}

/// The type of a statistic of `type`: its shape without `dims`, in the wide element type.
inline mlir::RankedTensorType statisticType(mlir::RankedTensorType type,
                                            llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<int64_t> shape;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim))
      shape.push_back(type.getDimSize(dim));
  return mlir::RankedTensorType::get(shape, wideElementType(type));
}

/// The value before casts to wider floats, for an op that widens its operand itself. Example: the
/// bf16 logits behind a cast to f32. Widening is exact, and the gradient is rounded once either
/// way.
inline mlir::Value beforeWidening(mlir::Value value) {
  while (auto cast = value.getDefiningOp<CastOp>()) {
    auto from = mlir::dyn_cast<mlir::FloatType>(tensorType(cast.getInput()).getElementType());
    auto to = mlir::dyn_cast<mlir::FloatType>(tensorType(value).getElementType());
    // Of two floats, the wider one has both the larger mantissa and the larger exponent.
    bool isExact = from && to && from.getFPMantissaWidth() <= to.getFPMantissaWidth() &&
                   from.getWidth() < to.getWidth();
    if (!isExact)
      return value;
    value = cast.getInput();
  }
  return value;
}

/// Builds ops at one location.
struct Formula {
  using Value = mlir::Value;
  using Dims = llvm::ArrayRef<int64_t>;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return builder.create<Op>(loc, std::forward<Args>(args)...)->getResult(0);
  }

  Value add(Value a, Value b) { return make<AddOp>(a, b); }
  Value sub(Value a, Value b) { return make<SubOp>(a, b); }
  Value mul(Value a, Value b) { return make<MulOp>(a, b); }
  Value div(Value a, Value b) { return make<DivOp>(a, b); }
  Value neg(Value a) { return make<NegOp>(a); }
  Value exp(Value a) { return make<ExpOp>(a); }
  Value log(Value a) { return make<LogOp>(a); }
  Value tanh(Value a) { return make<TanhOp>(a); }
  Value erf(Value a) { return make<ErfOp>(a); }
  Value sigmoid(Value a) { return make<SigmoidOp>(a); }
  Value rsqrt(Value a) { return make<RsqrtOp>(a); }

  /// A splat of `value` with the type of `like`.
  Value number(Value like, double value) { return splat(builder, loc, tensorType(like), value); }

  /// `a` with another element type.
  Value cast(Value a, mlir::Type elementType) {
    auto type = tensorType(a);
    if (type.getElementType() == elementType)
      return a;
    return make<CastOp>(mlir::RankedTensorType::get(type.getShape(), elementType), a);
  }
  Value wide(Value a) { return cast(a, wideElementType(tensorType(a))); }

  Value compare(Value a, Value b, llvm::StringRef predicate) {
    auto type = mlir::RankedTensorType::get(tensorType(a).getShape(), builder.getI1Type());
    return make<CompareOp>(type, a, b, predicate);
  }
  Value select(Value pred, Value a, Value b) { return make<SelectOp>(a.getType(), pred, a, b); }

  Value sum(Value a, Dims dims) { return dims.empty() ? a : make<ReduceSumOp>(a, dims); }

  /// Broadcasts `a` to the shape of `like`; `dims` are the dims of `like` missing in `a`.
  Value repeat(Value a, Value like, Dims dims) {
    llvm::SmallVector<int64_t> kept;
    for (int64_t dim = 0; dim < tensorType(like).getRank(); ++dim)
      if (!llvm::is_contained(dims, dim))
        kept.push_back(dim);
    return broadcastTo(builder, loc, a, tensorType(like).getShape(), kept);
  }

  /// Broadcasts the vector `a` along dim `dim` of `like`.
  Value along(Value a, Value like, int64_t dim) {
    return broadcastTo(builder, loc, a, tensorType(like).getShape(), {dim});
  }

  /// The mean over `dims`: a sum divided by the number of elements in the serial program.
  Value mean(Value a, Dims dims) {
    int64_t count = 1;
    for (int64_t dim : dims)
      count *= tensorType(a).getDimSize(dim);
    Value total = sum(a, dims);
    return div(total, number(total, double(count)));
  }

  Value einsum(Value a, Value b, Dims aLabels, Dims bLabels, Dims outLabels) {
    return make<EinsumOp>(a, b, aLabels, bLabels, outLabels);
  }
};

} // namespace tbc

#endif // TBC_IR_FORMULA_H

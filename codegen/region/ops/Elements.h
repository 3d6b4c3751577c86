//===- Elements.h - Arithmetic on elements of kernels -----------------------===//
//
// Elements are scalars or vectors of f32, i64 or i1.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_REGION_OPS_ELEMENTS_H
#define TBC_CODEGEN_REGION_OPS_ELEMENTS_H

#include "codegen/region/KernelOp.h"
#include "ir/Tbc.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace tbc::region {

/// Builds arithmetic that reads like the formula of an op. The operands decide between float and
/// integer forms of an operation.
struct Elements {
  using Value = mlir::Value;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  template <typename Op, typename... Args> Value make(Args &&...args) const {
    return builder.create<Op>(loc, std::forward<Args>(args)...)->getResult(0);
  }
  static bool isFloat(Value x) { return llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)); }

  /// Returns the constant `value` in the type of `like`.
  Value number(Value like, double value) const { return constant(like.getType(), value); }
  /// Returns the scalar or vector type of `element`, in the shape of `like`.
  static mlir::Type typeLike(Value like, mlir::Type element) {
    auto vector = llvm::dyn_cast<mlir::VectorType>(like.getType());
    return vector ? mlir::Type(mlir::VectorType::get(vector.getShape(), element)) : element;
  }
  Value constant(mlir::Type type, double value) const {
    mlir::Type element = mlir::getElementTypeOrSelf(type);
    mlir::TypedAttr attr;
    if (llvm::isa<mlir::FloatType>(element))
      attr = builder.getFloatAttr(element, value);
    else
      attr = builder.getIntegerAttr(element, int64_t(value));
    if (auto vector = llvm::dyn_cast<mlir::VectorType>(type))
      attr = mlir::DenseElementsAttr::get(vector, mlir::Attribute(attr));
    return make<mlir::arith::ConstantOp>(attr);
  }

  /// Broadcasts the scalar `x` to a vector if `like` is one.
  Value splat(Value x, Value like) const {
    if (llvm::isa<mlir::VectorType>(x.getType()) || !llvm::isa<mlir::VectorType>(like.getType()))
      return x;
    return make<mlir::vector::SplatOp>(typeLike(like, x.getType()), x);
  }
  /// Builds FloatOp or IntOp; a scalar operand is broadcast if the other one is a vector.
  template <typename FloatOp, typename IntOp> Value binary(Value x, Value y) const {
    Value left = splat(x, y), right = splat(y, x);
    return isFloat(x) ? make<FloatOp>(left, right) : make<IntOp>(left, right);
  }
  Value add(Value x, Value y) const {
    return binary<mlir::arith::AddFOp, mlir::arith::AddIOp>(x, y);
  }
  Value sub(Value x, Value y) const {
    return binary<mlir::arith::SubFOp, mlir::arith::SubIOp>(x, y);
  }
  Value mul(Value x, Value y) const {
    return binary<mlir::arith::MulFOp, mlir::arith::MulIOp>(x, y);
  }
  Value div(Value x, Value y) const { return make<mlir::arith::DivFOp>(splat(x, y), splat(y, x)); }
  Value neg(Value x) const {
    return isFloat(x) ? make<mlir::arith::NegFOp>(x) : sub(number(x, 0), x);
  }
  Value sqrt(Value x) const { return make<mlir::math::SqrtOp>(x); }
  Value exp(Value x) const { return make<mlir::math::ExpOp>(x); }
  Value select(Value condition, Value x, Value y) const {
    return make<mlir::arith::SelectOp>(condition, x, y);
  }
  Value less(Value x, Value y) const {
    return isFloat(x) ? make<mlir::arith::CmpFOp>(mlir::arith::CmpFPredicate::OLT, x, y)
                      : make<mlir::arith::CmpIOp>(mlir::arith::CmpIPredicate::slt, x, y);
  }
  /// Whether `x` is at most 0; false for a NaN.
  Value notPositive(Value x) const {
    return isFloat(x) ? make<mlir::arith::CmpFOp>(mlir::arith::CmpFPredicate::OLE, x, number(x, 0))
                      : make<mlir::arith::CmpIOp>(mlir::arith::CmpIPredicate::sle, x, number(x, 0));
  }
  /// Returns the larger operand: NaN if one is, and either of a zero and its negative. With that
  /// freedom it is one instruction of GPUs (max.NaN), and three of CPUs.
  Value larger(Value x, Value y) const {
    return isFloat(x) ? make<mlir::arith::MaximumFOp>(x, y, mlir::arith::FastMathFlags::nsz)
                      : select(less(x, y), y, x);
  }
  /// Returns the smaller operand, with the same rules.
  Value smaller(Value x, Value y) const {
    return isFloat(x) ? make<mlir::arith::MinimumFOp>(x, y, mlir::arith::FastMathFlags::nsz)
                      : select(less(y, x), y, x);
  }
};

/// Attaches KernelOpInterface to an op with one result, given a function that builds an element.
template <typename Op> using ElementFn = mlir::Value (*)(Op, const Elements &, mlir::ValueRange);

enum class Types { Floats, All };

template <typename Op, ElementFn<Op> build, Types types = Types::Floats>
struct ElementModel : KernelOpInterface::ExternalModel<ElementModel<Op, build, types>, Op> {
  bool isSupported(mlir::Operation *op) const {
    return types == Types::All || llvm::all_of(op->getOperandTypes(), [](mlir::Type type) {
             return llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type));
           });
  }
  llvm::SmallVector<mlir::Value, 1> buildElement(mlir::Operation *op, mlir::OpBuilder &builder,
                                                 mlir::ValueRange elements) const {
    return {build(llvm::cast<Op>(op), Elements{builder, op->getLoc()}, elements)};
  }
};

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_OPS_ELEMENTS_H

//===- Match.h - Matchers of the raising patterns --------------------------===//
//
// The matchers look at the computed function, not at one exporter's spelling.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PASSES_RAISE_MATCH_H
#define TBC_PASSES_RAISE_MATCH_H

#include "ir/Tbc.h"

#include <map>
#include <optional>

namespace tbc::raise {

/// Returns the number in all elements of `value`: a constant, broadcast, reshaped, transposed or
/// cast between floats.
std::optional<double> splatNumber(mlir::Value value);

/// Returns `number` as an element of type `element` holds it: rounded, or without its fraction.
/// Returns nullopt if it is too large for integers. Example: 0.5 is 0 in i64.
std::optional<double> inType(double number, mlir::Type element);

/// Returns how far constants of a formula may be off in the element type of `value`, relative to
/// their size: 1e-6 for f32 and f64; four roundings for narrower types, since a formula multiplies
/// several constants. Example: 2^-7 for bf16, whose rounding is 2^-9.
double constantTolerance(mlir::Value value);
/// Returns true if two constants are the same formula constant: equal up to rounding. Example:
/// 0.70710677 and sqrt(0.5).
bool isClose(double actual, double expected, double tolerance = 1e-6);

/// Returns the producer of `value` if it is of type Op, or null.
template <typename Op> Op definedBy(mlir::Value value) { return value.getDefiningOp<Op>(); }

/// Returns the operand of `op`, a binary op, beside `value`; null if `value` is no operand.
template <typename Op> mlir::Value otherOperand(Op op, mlir::Value value) {
  if (op.getLhs() == value)
    return op.getRhs();
  return op.getRhs() == value ? op.getLhs() : mlir::Value();
}

/// Returns `value` as polynomial in `x`, coefficients by degree; nullopt if it is no polynomial.
/// Exponents are small integers. Example: x * x + 3 is {0: 3, 2: 1}.
using Polynomial = std::map<int64_t, double>;
std::optional<Polynomial> polynomialIn(mlir::Value value, mlir::Value x);

/// Whether two polynomials have the same degrees and close coefficients.
bool isClose(const Polynomial &actual, const Polynomial &expected, double tolerance = 1e-6);

/// A number times factors that are no such products themselves. `stop` is not taken apart.
struct Product {
  double number = 1;
  llvm::SmallVector<mlir::Value> factors;
};
Product flattenProduct(mlir::Value value, mlir::Value stop = {});

/// A value of fewer dims, broadcast to the shape of another tensor: its dim i is dim `dims[i]`
/// there. Example: a row of 4 elements in a 3 x 4 tensor has dims [1].
struct Spread {
  mlir::Value value;
  llvm::SmallVector<int64_t> dims;

  /// `value` itself, in its own shape.
  static Spread of(mlir::Value value);

  /// Looks through broadcasts, and through reshapes that only remove or add dims of size 1.
  Spread &strip();
  /// Returns the operand of a one-operand op with the result `value`.
  Spread operand(mlir::Value operand) const;
};

/// If `spread` is the mean over the last dim of squares or plain elements of a value, returns that
/// value, else null. The mean lacks that dim and is broadcast along it.
mlir::Value meanOverLastDim(Spread spread, int64_t numDims);
/// Returns the value of which `value` is a view with other dims of size 1. Example: [b, 1] of a
/// [1, b] that is a transpose of it.
mlir::Value skipUnitDims(mlir::Value value);
/// x if `value` is x * x or x to the power of 2.
mlir::Value squareRoot(mlir::Value value);
/// If `value` repeats a vector along every dim but the last of `numDims`, returns the vector, else
/// null.
mlir::Value vectorOfLastDim(mlir::Value value);

/// u and epsilon of a spread 1 / sqrt(u + epsilon), for `reciprocalRoot`, or sqrt(u + epsilon), for
/// `root`.
struct RootOfSum {
  Spread sum;
  double epsilon = 0;
};
std::optional<RootOfSum> reciprocalRoot(Spread spread);
std::optional<RootOfSum> root(Spread spread);

/// Returns true if `op` draws random numbers in training: each element has its own, so neither two
/// parts of it are equal, nor can it be computed before.
bool isRandom(mlir::Operation *op);

/// Returns true if `value` is an argument of the function but for moves and casts.
bool isParameter(mlir::Value value);
/// Returns true if `value` is computed from a matmul of activations with as many elements, by a few
/// elementwise ops.
bool readsProduct(mlir::Value value, int depth = 0);

/// Gives `made` the location and the id of the replaced op `root`.
void takeIdentity(mlir::Operation *made, mlir::Operation *root);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MATCH_H

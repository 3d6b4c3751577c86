//===- Match.h - What raising patterns look for ----------------------------===//
//
// Matchers that look at what is computed rather than at how an exporter writes it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PASSES_RAISE_MATCH_H
#define TBC_PASSES_RAISE_MATCH_H

#include "ir/Tbc.h"

#include <map>
#include <optional>

namespace tbc::raise {

/// The number that every element of `value` is: a constant, broadcast, reshaped, transposed or cast
/// between floats.
std::optional<double> splatNumber(mlir::Value value);

/// Whether two constants of a formula are meant to be the same: equal but for the rounding of f32.
bool isClose(double actual, double expected);

/// The operation of type Op that made `value`, or null.
template <typename Op> Op definedBy(mlir::Value value) { return value.getDefiningOp<Op>(); }

/// The operand of `op`, a binary op, that is not `value`; null if neither is.
template <typename Op> mlir::Value otherOperand(Op op, mlir::Value value) {
  if (op.getLhs() == value)
    return op.getRhs();
  return op.getRhs() == value ? op.getLhs() : mlir::Value();
}

/// `value` as polynomial in `x`, coefficients by degree; nothing if it is not one. Exponents are
/// small integers.
using Polynomial = std::map<int64_t, double>;
std::optional<Polynomial> polynomialIn(mlir::Value value, mlir::Value x);

/// Whether two polynomials have the same degrees and close coefficients.
bool isClose(const Polynomial &actual, const Polynomial &expected);

/// A product: a number times factors that are no products of numbers. `stop` is not taken apart.
struct Product {
  double number = 1;
  llvm::SmallVector<mlir::Value> factors;
};
Product flattenProduct(mlir::Value value, mlir::Value stop = {});

/// A value of fewer dims seen as a tensor of the shape of another, which has dim `dims[i]` in place
/// of dim i: what a broadcast makes of it.
struct Spread {
  mlir::Value value;
  llvm::SmallVector<int64_t> dims;

  /// `value` itself, in its own shape.
  static Spread of(mlir::Value value);

  /// Looks through broadcasts, and reshapes that only remove or add dims of size 1.
  Spread &strip();
  /// The operand of a one-operand op whose result is `value`.
  Spread operand(mlir::Value operand) const;
};

/// The value of which `spread` is the sum of squares or of plain elements over the last dim,
/// divided by its size, or null. The mean lacks that dim and is spread along it.
mlir::Value meanOverLastDim(Spread spread, int64_t numDims);
/// x if `value` is x * x or x to the power of 2.
mlir::Value squareRoot(mlir::Value value);
/// The vector that `value` repeats along every dim but the last of `numDims`, or null.
mlir::Value vectorOfLastDim(mlir::Value value);

/// u and epsilon where the spread is 1 / sqrt(u + epsilon); or sqrt(u + epsilon) if `inverse`.
struct RootOfSum {
  Spread sum;
  double epsilon = 0;
};
std::optional<RootOfSum> reciprocalRoot(Spread spread);
std::optional<RootOfSum> root(Spread spread);

/// Gives `made` the location and the id of `root`, which it replaces.
void takeIdentity(mlir::Operation *made, mlir::Operation *root);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MATCH_H

//===- MaskPredicate.h - The predicate of an attention mask ----------------===//

#ifndef TBC_PASSES_RAISE_MASKPREDICATE_H
#define TBC_PASSES_RAISE_MASKPREDICATE_H

#include "ir/Tbc.h"

#include <optional>
#include <vector>

namespace tbc::raise {

/// The region sum of coefficients[d] * index[d] + offset >= 0, in the dims of some tensor. Example:
/// the causal mask, key <= query, has coefficients [1, -1] and offset 0.
struct HalfPlane {
  llvm::SmallVector<int64_t> coefficients;
  int64_t offset = 0;
};

/// A boolean function of the index into some tensor.
struct Predicate {
  /// True if all of them hold.
  llvm::SmallVector<HalfPlane> halfPlanes;
  /// And true only at these elements: row-major in the shape of the tensor; empty: everywhere.
  std::vector<bool> table;
  /// For a bias: the lowest number that it adds where the predicate is false, and whether it adds
  /// others there.
  double hiddenNumber = 0;
  bool hasOtherNumbers = false;
};

/// Returns the predicate of `value`, a boolean tensor of constants and indices: symbolic, for any
/// size, or else evaluated by the reference kernels. Returns nullopt if it depends on the
/// function's arguments or is too large to evaluate.
std::optional<Predicate> predicateOf(mlir::Value value);

/// Returns the predicate of the zeros of `value`, a mask that is added to scores. Returns nullopt
/// unless it hides scores (ir/HidingNumber.h) everywhere else.
std::optional<Predicate> biasPredicateOf(mlir::Value value);

/// Returns the predicate of the ones of `value`, zeros and ones made of constants and indices.
std::optional<Predicate> onesPredicateOf(mlir::Value value);

/// One of the readers above.
using PredicateOf = std::optional<Predicate>(mlir::Value value);

/// A predicate on query i < numQueries and key j < numKeys.
struct PairPredicate {
  /// query * i + key * j + offset >= 0
  struct HalfPlane {
    int64_t query, key, offset;
  };
  std::vector<HalfPlane> halfPlanes;
  /// Element i * numKeys + j.
  std::vector<std::vector<bool>> tables;

  bool isEmpty() const { return halfPlanes.empty() && tables.empty(); }
};

/// Keys j with -left <= j - (i + numKeys - numQueries) <= right; -1: no bound.
struct MaskWindow {
  int64_t left = -1, right = -1;
};

/// Returns the window equal to `predicate`; nullopt if there is none, or if it leaves a query no
/// key.
std::optional<MaskWindow> windowOf(const PairPredicate &predicate, int64_t numQueries,
                                   int64_t numKeys);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MASKPREDICATE_H

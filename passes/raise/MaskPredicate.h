//===- MaskPredicate.h - What an attention mask lets through ---------------===//

#ifndef TBC_PASSES_RAISE_MASKPREDICATE_H
#define TBC_PASSES_RAISE_MASKPREDICATE_H

#include "ir/Tbc.h"

#include <optional>
#include <vector>

namespace tbc::raise {

/// Where sum of coefficients[d] * index[d] + offset >= 0, in the dims of some tensor.
struct HalfPlane {
  llvm::SmallVector<int64_t> coefficients;
  int64_t offset = 0;
};

/// A boolean function of the index into some tensor.
struct Predicate {
  /// True where all of them hold.
  llvm::SmallVector<HalfPlane> halfPlanes;
  /// And where this is true: row-major in the shape of the tensor; empty: everywhere.
  std::vector<bool> table;
  /// Of a bias: what it adds where this is false.
  double hiddenNumber = 0;
};

/// Numbers below this, added to a score, leave nothing of it after a softmax.
inline constexpr double kHidden = -1e4;

/// `value`, a boolean tensor made of constants and indices alone: symbolically, at any size, or
/// else evaluated by the reference kernels. Nothing if it depends on the function's arguments or is
/// too large to evaluate.
std::optional<Predicate> predicateOf(mlir::Value value);

/// Where `value` is 0, if it is below kHidden everywhere else: what is added to scores as a mask.
/// Otherwise nothing.
std::optional<Predicate> biasPredicateOf(mlir::Value value);

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

/// The window that `predicate` is; nothing if it is none, or one that leaves a query no key.
std::optional<MaskWindow> windowOf(const PairPredicate &predicate, int64_t numQueries,
                                   int64_t numKeys);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MASKPREDICATE_H

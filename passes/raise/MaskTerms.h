//===- MaskTerms.h - The terms of a mask -----------------------------------===//
//
// A mask over samples, queries and keys is read as a conjunction of terms:
// - a predicate of the positions of query and key;
// - booleans per key, or per query;
// - integers per query and per key that are equal (segments) or ordered (positions).
//
// All but the first hold data, and no term has both sequences as dims.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PASSES_RAISE_MASKTERMS_H
#define TBC_PASSES_RAISE_MASKTERMS_H

#include "passes/raise/Dims.h"
#include "passes/raise/MaskPredicate.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::raise {

/// A boolean function of the index, taken apart through arithmetic and logic.
struct Truth {
  enum class Kind {
    /// A boolean tensor.
    Value,
    /// Integers, not 0: a mask of integers holds 0 and 1.
    Nonzero,
    /// Numbers made of positions alone, 0.
    Zero,
    /// Numbers 0 and 1 made of positions alone, 1.
    One,
    Not,
    And,
    /// Everywhere.
    Always
  };
  Kind kind = Kind::Always;
  View view;
  std::vector<Truth> operands;
};

/// The effect of a mask on scores: they stay if `kept` holds and are hidden otherwise.
struct MaskStep {
  Truth kept;
  /// The mask's number: it is added to the score, or replaces it.
  double number = 0;
  bool replacesScores = false;
  /// It hides some keys by another number too.
  bool hasOtherNumbers = false;
  /// Something is added to the scores after it.
  bool isBiased = false;
};

/// Returns the effect of `factor` times `bias`, added to scores: one step for each mask in a sum of
/// masks. Returns nullopt for any other bias. Example: XLNet subtracts 1e30 times a mask of hidden
/// keys, which is the factor -1.
std::optional<std::vector<MaskStep>> masksOfBias(DimTable &table, const View &bias, double factor);

/// Returns `view`, a boolean tensor, or its negation.
Truth truthOf(const View &view, bool isNegated);

/// The roles of the dims of an attention's scores.
struct MaskRoles {
  DimList samples, queries, keys;
};

/// A boolean (or integers, compared to 0) without broadcast dims, or its negation.
struct MaskTerm {
  View view;
  bool isNonzero = false, isNegated = false;
};

struct MaskTerms {
  PairPredicate positions;
  /// Over samples and keys; over samples and queries.
  std::vector<MaskTerm> keys, queries;
  /// Integers per query and per key: equal (segments), or the key's at most the query's (orders).
  std::vector<std::pair<View, View>> segments, orders;

  bool haveData() const {
    return !keys.empty() || !queries.empty() || !segments.empty() || !orders.empty();
  }
  /// Returns true if every term with data is also a term of `other`.
  bool isDataWithin(const MaskTerms &other) const;
};

/// Adds the terms of `truth` to `terms`. If it is no such conjunction, returns false and sets
/// `reason`.
bool addTerms(DimTable &table, const MaskRoles &roles, const Truth &truth, MaskTerms &terms,
              std::string &reason);

/// Returns true if `factor`, zeros and ones made of positions alone, is 1 at every pair of query
/// and key that `positions` allows. Example: GPT-1 multiplies scores with its causal table before
/// it hides the others.
bool isOneWithin(DimTable &table, const MaskRoles &roles, const View &factor,
                 const PairPredicate &positions);

/// The conjunction of `terms`, booleans over samples and `sequence` (queries or keys).
mlir::Value buildTerms(mlir::OpBuilder &builder, mlir::Location loc, DimTable &table,
                       llvm::ArrayRef<unsigned> samples, llvm::ArrayRef<unsigned> sequence,
                       llvm::ArrayRef<MaskTerm> terms);
/// The integers `view` over samples and `sequence`.
mlir::Value buildIntegers(mlir::OpBuilder &builder, mlir::Location loc, DimTable &table,
                          llvm::ArrayRef<unsigned> samples, llvm::ArrayRef<unsigned> sequence,
                          const View &view);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MASKTERMS_H

//===- Fold.h - Repeated blocks of the forward order -----------------------===//
//
// Plain C++. Structural hashing, names excluded: for the layer table, and for bounds.
// The plan that is found does not depend on it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_FOLD_H
#define TBC_PLANNER_CORE_FOLD_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// `count` runs, one after the other, of `length` forward ops of equal structure each.
struct Block {
  int first = 0;
  int length = 1;
  int count = 1;
};

/// Hashes of the forward ops: of two ops they are equal if the ops have the same kind, class, loops
/// and layouts, and operands that come from as many ops before, or are inputs or parameters of the
/// same role. Names of ops, values and factors do not enter.
std::vector<uint64_t> structuralHashes(const reshard::Graph &graph);

/// The forward order as blocks, repeated ones folded: at each place the period and count that cover
/// the most ops, the shortest period among equals; ops between repeats are blocks of their own,
/// joined.
std::vector<Block> foldBlocks(const reshard::Graph &graph);

/// A part of the graph that occurs several times: the ops of one occurrence, forward and backward.
struct Repeat {
  std::vector<bool> ops; // by op of the graph
  /// By forward op of an occurrence that counts: the op of `ops` in its place. Else -1.
  std::vector<int> like;
  int64_t count = 0; // occurrences of equal structure, without an op in common; 0: none
};

/// The block that covers most of the forward order, in an occurrence with others before and after
/// it. Those are counted whose backward ops are of the same kinds and sizes too.
Repeat largestRepeat(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_FOLD_H

//===- Fold.h - Repeated blocks of the forward order -----------------------===//
//
// Plain C++. Structural hashing without names, for the layer table and for bounds. The plan found
// does not depend on it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_GRAPH_FOLD_H
#define TBC_PLANNER_GRAPH_FOLD_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// `count` consecutive runs of `length` forward ops each, of equal structure.
struct Block {
  int first = 0;
  int length = 1;
  int count = 1;
};

/// Returns hashes of the forward ops. Two hashes are equal if the ops have the same kind, class,
/// loops and layouts, and matching operands. Operands match if they are produced at the same
/// distance in ops, or are inputs or parameters of the same role. Names of ops, values and factors
/// do not enter.
std::vector<uint64_t> structuralHashes(const reshard::Graph &graph);

/// Returns looser hashes of the forward ops: produced operands match if their layouts do, at any
/// distance. `kindOf`: by forward op; ops of different numbers differ. Example: a mask that all
/// layers read is at another distance from each layer.
std::vector<uint64_t> looseHashes(const reshard::Graph &graph, const std::vector<uint64_t> &kindOf);

/// Returns the forward order as blocks, with repeats folded. At each position it takes the period
/// and count that cover the most ops, and the shortest period among equals. Ops between repeats are
/// joined into blocks of their own. Example: ops a b c b c b c d give a, (b c) x 3, d.
std::vector<Block> foldBlocks(const reshard::Graph &graph);
/// The same for ops with these hashes.
std::vector<Block> foldBlocks(const std::vector<uint64_t> &hashes);

/// A repeated part of the graph: the ops of one occurrence, forward and backward.
struct Repeat {
  std::vector<bool> ops; // by op of the graph
  /// By forward op: for a counted occurrence, the corresponding op of `ops`. Else -1.
  std::vector<int> like;
  int64_t count = 0; // disjoint occurrences of equal structure; 0: no repeat
};

/// Returns the block with the largest share of the forward order, as an occurrence with others
/// before and after it. Counts only occurrences whose backward ops have the same kinds and sizes
/// too.
Repeat largestRepeat(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_FOLD_H

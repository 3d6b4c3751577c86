//===- FactorSpace.h - Dims as sums of products of factors -----------------===//
//
// Plain C++. Partition refinement over the structure of dims: the arithmetic behind factor
// analysis.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_FACTORSPACE_H
#define TBC_IR_FACTORSPACE_H

#include "planner/reshard/Sharding.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tbc {

/// A space of dims. Each node is a leaf (one factor), an ordered product or an ordered sum of
/// nodes. Unifying two nodes says that they are the same dim: each gets the structure of the other,
/// and leaves split if they meet a product or a sum. Identity is never inferred from equal sizes,
/// only from `unify`. Example: unifying the leaf 24 with the product 6 x 4 splits it into leaves 6
/// and 4.
///
/// If two structures have no common refinement (6 x 4 against 4 x 6), the span becomes one opaque
/// leaf. Every leaf under it is then unshardable, since its shardings could not be told apart. A
/// sum of more than `maxLeaves` leaves becomes opaque too, but not the factors beside it: nodes
/// share children, so 26 of them can say "x twice" 26 times over. All work is linear in the nodes.
class FactorSpace {
public:
  using Node = int;

  /// Limit for the leaves of one dim, counted with repetition. A sequence built step by step has
  /// one leaf per step.
  static constexpr size_t maxLeaves = 1024;

  Node leaf(int64_t size);
  /// The product of `nodes` in row-major order. An empty product has size 1.
  Node product(std::vector<Node> nodes);
  /// The concatenation of `nodes`.
  Node sum(std::vector<Node> nodes);

  /// Makes `a` and `b`, of equal size, the same dim.
  void unify(Node a, Node b);
  /// Marks every leaf under `node` as unshardable.
  void makeOpaque(Node node);

  int64_t size(Node node) const;
  /// True if the leaf with this id may be sharded.
  bool isShardable(reshard::FactorId factor) const;

  /// Returns `node` as an ordered sum of ordered products of leaves. The id of a factor is the
  /// number of its representative leaf. Must not be called before `seal`.
  reshard::DimLayout layout(Node node) const;

  /// Makes every node a sum of products of leaves: a sum behind the first factor of a product
  /// becomes opaque, and a node of another form whole. Must be called once after the last `unify`,
  /// with all nodes of interest. A pair of `same` was unified: if one of it is in a dim that became
  /// opaque since, the other becomes so.
  void seal(const std::vector<Node> &nodes, const std::vector<std::pair<Node, Node>> &same = {});

private:
  enum class Kind { Leaf, Product, Sum };
  struct Entry {
    Kind kind = Kind::Leaf;
    int64_t size = 1;
    bool opaque = false;
    bool wide = false;     // more than maxLeaves; then it is opaque too
    bool isNested = false; // another node has it as a child or is it
    Node forward = -1;     // this node is another one (union-find)
    std::vector<Node> children;
  };

  Node find(Node node) const;
  Node add(Kind kind, int64_t size, std::vector<Node> children);
  void bind(Node leaf, Node other);
  bool contains(Node tree, Node leaf) const;
  bool hasManyLeaves(Node node) const;
  bool becomesWide(Node node);
  std::vector<Node> factors(Node node) const; // children of a product, flattened; else {node}
  std::vector<Node> terms(Node node) const;   // children of a sum, flattened; else {node}
  bool unifyProducts(Node a, Node b);
  bool unifySums(Node a, Node b);
  bool splitLeadingFactor(Node product, Node sum);
  void merge(Node a, Node b);
  bool haveOneStructure(Node a, Node b) const;
  bool isSealable(Node node);
  void closeInnerSums(Node node);

  std::vector<Entry> entries;
  /// Per node, the number of the last walk that visited it, so a walk visits shared nodes once.
  mutable std::vector<unsigned> visited;
  mutable unsigned walk = 0;
  /// Per node, whether it was found to be sealable.
  std::vector<bool> sealable;
};

} // namespace tbc

#endif // TBC_IR_FACTORSPACE_H

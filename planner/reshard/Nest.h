//===- Nest.h - Whether ops are one nest of loops ---------------------------===//
//
// Plain C++. The rules of codegen/region (`findDomain`), on factors instead of IR.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_NEST_H
#define TBC_PLANNER_RESHARD_NEST_H

#include "planner/reshard/Graph.h"

#include <functional>
#include <map>
#include <vector>

namespace tbc::reshard {

/// Decides on one assignment, for ops that read their operands as the assignment requires.
class NestFinder {
public:
  NestFinder(const Graph &graph, const Assignment &assignment, const Derivation &derivation)
      : graph(graph), assignment(assignment), derivation(derivation), known(graph.ops.size()) {}

  /// Whether `ops` are one nest (planKernels). Values read outside are results of the kernel.
  bool isNest(const std::vector<int> &ops, const std::function<bool(int value)> &isReadOutside) {
    return isNest(ops, isReadOutside, /*hasColumnSums=*/false);
  }

  /// Whether `ops` are one nest that reduces its innermost loops, and also has column sums: over
  /// all other loops, in ops that no op with these loops reads (region::Domain::columnSums).
  /// Example: rms_norm_grad, rms_scale_grad and a cast of the latter.
  bool isNestWithColumnSums(const std::vector<int> &ops,
                            const std::function<bool(int value)> &isReadOutside) {
    return isNest(ops, isReadOutside, /*hasColumnSums=*/true);
  }

  /// Whether the op combines elements along a loop of more than one.
  bool isReduction(int op) { return !loopsOf(op).reduced.empty(); }

  /// Whether the op only writes its operand once more: a reshape.
  bool isCopy(int op);

  /// Whether the op cuts the columns of a tensor or joins columns to one (ColumnUse). Nests with
  /// other ops read and write them in place.
  static bool movesColumns(const GraphOp &op) {
    return op.columns.kind == ColumnUse::Kind::Cuts || op.columns.kind == ColumnUse::Kind::Joins;
  }

private:
  class Question;
  /// Numbers for loops: a factor is a loop; so is a dim of several segments, as a whole.
  class LoopTable {
  public:
    int ofFactor(FactorId factor) { return number(factors, factor); }
    /// Equal segments give equal numbers.
    int ofSegments(const std::vector<Segment> &segments);
    int count() const { return next; }

  private:
    template <typename Key> int number(std::map<Key, int> &numbers, const Key &key) {
      auto [found, isNew] = numbers.try_emplace(key, next);
      next += isNew;
      return found->second;
    }
    std::map<FactorId, int> factors;
    std::map<std::vector<FactorId>, int> segmented; // the factors of each segment, and its end
    int next = 0;
  };

  /// A loop of a value, with its size on a rank. Loops of size 1 are left out.
  struct Loop {
    int number;
    int64_t size;
    bool operator==(const Loop &o) const { return number == o.number && size == o.size; }
  };
  using Loops = std::vector<Loop>;
  /// The loops of one op.
  struct OpLoops {
    bool isKnown = false;
    bool isPossible = true; // no value has a loop twice
    std::vector<Loops> operands, results;
    /// Of an op that cuts or joins columns: how many loops of each part, the last ones, are of its
    /// columns. The parts are the result of the one, and the operands of the other.
    std::vector<size_t> columnLoops;
    std::vector<int> reduced; // ascending
  };
  static constexpr size_t allLoops = size_t(-1);
  /// An array in memory.
  struct Array {
    const Loops *loops;
    size_t contiguous; // the last loops that are next to each other there; more: all of them
  };

  bool isNest(const std::vector<int> &ops, const std::function<bool(int value)> &isReadOutside,
              bool hasColumnSums);
  /// Whether ops that cut columns read values of other kernels, those that join columns write the
  /// kernel's results and nothing else reads their parts, and there are other ops than these.
  bool movesColumnsAtItsEnds(const std::vector<int> &ops,
                             const std::function<bool(int value)> &isReadOutside) const;
  const OpLoops &loopsOf(int op);
  Loops loopsOf(int value, const Sharding &sharding, bool &isPossible);
  /// Adds the loops of dim `dim` of a value to `loops`.
  void addLoops(int value, const Sharding &sharding, int dim, Loops &loops, bool &isPossible);
  /// Returns the number of loops of the last dim of a value.
  size_t columnLoopsOf(int value, const Sharding &sharding);

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  LoopTable table;
  std::vector<OpLoops> known; // by op
  // Of the current question: by loop, its size; 0: not in the nest so far.
  std::vector<int64_t> sizes;
};

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_NEST_H

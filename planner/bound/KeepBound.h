//===- KeepBound.h - Least cost of keeping little for backward ------------===//
//
// Plain C++. A bound over every choice of recomputed forward ops (activation checkpointing).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_KEEPBOUND_H
#define TBC_PLANNER_BOUND_KEEPBOUND_H

#include "planner/cost/Cost.h"
#include "planner/devices/Cluster.h"
#include "planner/graph/Fold.h"
#include "planner/reshard/Graph.h"
#include "planner/support/OnceMap.h"

#include <vector>

namespace tbc::planner {

/// Bounds the least added time under a budget for kept bytes. A value read by backward is either
/// kept, or its op is recomputed; the op's operands are then treated the same way.
///
/// Considers only a repeated block, times its count; values from outside the block cost nothing.
/// The budget is relaxed by a multiplier (Lagrange). For a fixed multiplier the best choice is a
/// minimum cut (Picard, "Maximal closure of a graph", Management Science 22 (1976)). The best
/// multiplier is found from the lines of the cuts (Eisner and Severance, JACM 23 (1976)).
///
/// Recomputing an elementwise op can save time: its result is then read in one phase only, and may
/// be fused into its reader's kernel (isFused). So the bound may be negative.
///
/// Thread-safe.
class KeepBound {
public:
  /// `parts`: number of devices that share the work and the values of a micro-batch. `shares`:
  /// kernelShares() of `graph`; null: computed here.
  KeepBound(const reshard::Graph &graph, const Cluster &cluster, const Repeat &repeat, double parts,
            const std::vector<KernelShare> *shares = nullptr);

  /// Returns the least seconds added to one micro-batch, summed over all stages, if the stages keep
  /// at most `bytes` of it in total, counted on one device of each stage. Infinite if no choice
  /// keeps so little.
  double leastSeconds(double bytes) const;

  /// Returns the kept bytes by forward op with unlimited memory, for the repeated block, or for the
  /// whole graph without one. Keeping more of a block has no benefit.
  const std::vector<double> &keptWhereFree() const;

private:
  struct Cut {
    double seconds = 0, bytes = 0; // of the best choice for its multiplier
  };
  struct Value {
    int maker = -1;      // index into ops
    double bytes = 0;    // if kept
    bool isRead = false; // by the backward
  };
  struct Op {
    double seconds = 0;        // to recompute it, less the saving
    std::vector<int> operands; // indices into values
  };

  /// Returns by value and then by op: whether the value is needed in backward, or the op
  /// recomputed.
  std::vector<bool> sidesAt(double multiplier) const;
  const Cut &cutAt(double multiplier) const;
  Cut computeCut(double multiplier) const;
  std::vector<double> computeWhereFree() const;

  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int> numbers; // indices of ops in the graph
  int numForward = 0;
  double count = 1;          // of the block
  double outsideSeconds = 0; // possible saving by recomputing ops outside the block
  double unitSeconds = 1, unitBytes = 1;
  mutable OnceMap<double, Cut> cuts; // by multiplier
  mutable Once<std::vector<double>> whereFree;
};

/// Optimistic changes in the kernels of a micro-batch if an op is recomputed: the largest saving
/// and the least added time. A result then read once in a phase need not go through memory there.
struct AgainSeconds {
  double lessForward = 0;                      // of the op's own forward
  double moreBackward = 0;                     // for running it
  int forwardReader = -1, backwardReader = -1; // ops that then read its result from registers
  double foundForward = 0, foundBackward = 0;  // saving of those readers
};
/// Returns the changes by forward op, with all work divided over `parts` devices. KeepBound uses
/// the added time less all savings.
/// `shares`: as KeepBound.
std::vector<AgainSeconds> secondsOfRunningAgain(const reshard::Graph &graph, const Cluster &cluster,
                                                double parts,
                                                const std::vector<KernelShare> *shares = nullptr);

/// The largest saving in a micro-batch by any choice of recomputed ops: `launchSeconds`, plus
/// `movementSeconds` per sample if the whole sample is on one device. `graph` has one sample.
struct MostSaved {
  double launchSeconds = 0, movementSeconds = 0;
};
MostSaved mostSavedByRunningAgain(const reshard::Graph &graph, const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_KEEPBOUND_H

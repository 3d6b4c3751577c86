//===- KeepBound.h - What it costs at least to keep little for backward ----===//
//
// Plain C++. A bound over every set of forward ops that the backward may compute again.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_KEEPBOUND_H
#define TBC_PLANNER_CORE_KEEPBOUND_H

#include "planner/core/Cluster.h"
#include "planner/core/Fold.h"
#include "planner/core/OnceMap.h"
#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// A value that the backward reads is kept, or the op that makes it is run again, and so on for
/// what that op reads. How little time can that add where what is kept may take so many bytes?
///
/// Of a repeated block alone, as often as it is there: what comes from elsewhere costs nothing. The
/// budget is relaxed by a multiplier (Lagrange); with it the best choice is a minimum cut (Picard,
/// "Maximal closure of a graph", Management Science 22 (1976)), and the best multiplier is found
/// from the lines of the cuts (Eisner and Severance, JACM 23 (1976)).
///
/// Running an elementwise op again may save time: what it makes is then read in one phase alone,
/// and may be part of its reader's kernel there (isFused). So the answer may be below 0.
///
/// For any number of threads.
class KeepBound {
public:
  /// `parts`: devices over which all work and all values of a micro-batch are divided.
  KeepBound(const reshard::Graph &graph, const Cluster &cluster, const Repeat &repeat,
            double parts);

  /// Seconds that are added to one micro-batch, of all stages together, where what they keep of it
  /// may take `bytes` on one device each, together; infinite where nothing takes so little.
  double leastSeconds(double bytes);

  /// What is kept where memory is free, of the repeated block or, where there is none, of all:
  /// bytes by forward op of the graph. More of a block than these is of no use.
  std::vector<double> keptWhereFree() const;

private:
  struct Cut {
    double seconds = 0, bytes = 0; // of a choice that is best for its multiplier
  };
  struct Value {
    int maker = -1;      // index into ops
    double bytes = 0;    // if kept
    bool isRead = false; // by the backward
  };
  struct Op {
    double seconds = 0;        // of running it again, less what that saves
    std::vector<int> operands; // indices into values
  };

  /// By value and then by op: whether it must be at hand, or is run again.
  std::vector<bool> sidesAt(double multiplier) const;
  const Cut &cutAt(double multiplier);
  Cut computeCut(double multiplier) const;

  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int> numbers; // of ops, in the graph
  int numForward = 0;
  double count = 1;          // of the block
  double outsideSeconds = 0; // what running ops outside of it again may save
  double unitSeconds = 1, unitBytes = 1;
  OnceMap<double, Cut> cuts; // by multiplier
};

/// What may change in the kernels of a micro-batch where op `op` is run again, at the most that is
/// saved and the least that is added: a result that then is read once in a phase need not go
/// through memory there.
struct AgainSeconds {
  double lessForward = 0;                      // of the op's own forward
  double moreBackward = 0;                     // for running it
  int forwardReader = -1, backwardReader = -1; // ops that then find its result in registers,
  double foundForward = 0, foundBackward = 0;  // and what those save
};
/// By forward op, where all is divided over `parts` devices. Less all that is saved, what is added
/// is what KeepBound counts.
std::vector<AgainSeconds> secondsOfRunningAgain(const reshard::Graph &graph, const Cluster &cluster,
                                                double parts);

/// The most that running ops again saves in a micro-batch, whichever they are: `launchSeconds`, and
/// `movementSeconds` for each sample where all of it is on one device. `graph` is that of one
/// sample.
struct MostSaved {
  double launchSeconds = 0, movementSeconds = 0;
};
MostSaved mostSavedByRunningAgain(const reshard::Graph &graph, const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_KEEPBOUND_H

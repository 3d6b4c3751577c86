//===- IndependentCollectives.h - What a step must communicate ---------------===//
//
// A second derivation of the list of collectives, from the step graph and the strategies chosen for
// its ops, by the rules written down in planner/reshard/Graph.h and docs/design.md, section 3. It
// shares no code with `derive` and `countCollectives`, which the planner and the passes use: a bug
// there would be in the prediction and in the Program alike, but not here. Where Graph.h leaves
// room, this is what is meant:
//  - rule 1: an axis is reduce_scattered onto a factor where all users want it right after the axes
//    that the value has there already; repeated until no pending axis fits. Sums are deferred only
//    if the additive op wants none of the pending axes on a factor, and makes nothing that lies on
//    one.
//  - rule 5: what stays pending until the end of the step is pending in every part of the gradient
//    and over a data axis; with zero >= 2 only over reduceAxes.
//  - among sequences of collectives that are equally cheap and equally long any will do, but equal
//    changes of sharding are made in the same way.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_INDEPENDENTCOLLECTIVES_H
#define TBC_TESTS_TOOLS_INDEPENDENTCOLLECTIVES_H

#include "planner/reshard/Graph.h"
#include "runtime/abi/Program.h"
#include "tools/driver/Compile.h"

#include <ostream>
#include <string>
#include <vector>

namespace tbc::test {

/// Bytes that every rank of a stage holds for the whole step.
struct ResidentBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizerState = 0;
  int64_t state = 0;              // running statistics
  int64_t hostOptimizerState = 0; // in the memory of its host
  bool operator==(const ResidentBytes &o) const {
    return parameters == o.parameters && gradients == o.gradients &&
           optimizerState == o.optimizerState && state == o.state &&
           hostOptimizerState == o.hostOptimizerState;
  }
};

/// What the slots of a compiled stage hold.
ResidentBytes residentBytes(const program::Stage &stage);

/// For messages.
std::ostream &operator<<(std::ostream &out, const ResidentBytes &bytes);

struct StepSignature {
  /// Merged by kind, axes (in mesh order, joined by "+"), stage and bytes; sorted.
  std::vector<reshard::CollectiveCount> collectives;
  /// Where sequences of collectives are equally cheap and equally long there is no saying which is
  /// meant: per change of sharding (the same one is made the same way everywhere), the lists that
  /// each of its ways adds to `collectives`.
  std::vector<std::vector<std::vector<reshard::CollectiveCount>>> ties;
  std::vector<ResidentBytes> resident; // by stage
  /// Which value is moved where, in words, for messages.
  std::vector<std::string> moves;
};

/// What one step of `graph` under `assignment` executes on a rank of each stage, and holds.
/// `stateBytesPerElement`: of the optimizer, per parameter element; a parameter narrower than f32
/// has a master copy besides. `bucketBytes`: of reductions of gradients that are joined; 0: none.
/// Ends the program with a message where an assignment is beyond it: sub-axes, and values wanted by
/// a stage that has gone by.
StepSignature expectedSignature(const reshard::Graph &graph, const reshard::Assignment &assignment,
                                int64_t stateBytesPerElement, int64_t bucketBytes);

/// Empty if `actual` is the list of the signature, with one way for each of the ties; else one line
/// per collective that is in one list only (with the first way of each tie).
std::string difference(const reshard::Mesh &mesh, const StepSignature &expected,
                       const std::vector<reshard::CollectiveCount> &actual);

/// Empty if the Program has the collectives and the resident bytes that the plan's shardings call
/// for; else what differs, and which moves were expected.
std::string signatureDifference(const driver::CompiledPlan &compiled, const planner::Plan &plan);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_INDEPENDENTCOLLECTIVES_H

//===- IndependentCollectives.h - The expected collectives of a step ------===//
//
// A second derivation of the list of collectives, from the step graph and the strategies of its
// ops. It follows the rules in planner/reshard/Graph.h and docs/design.md, section 3. It shares no
// code with `derive` and `countCollectives`, which planner and passes use. So a bug there, wrong in
// prediction and Program alike, shows as a difference. Interpretations of Graph.h:
//  - rule 1: an axis is reduce-scattered onto a factor if all users want it there, right after the
//    axes that the factor already has. This repeats until no partial axis fits. Sums are deferred
//    only if the additive op wants no partial axis on a factor, and no result of it lies on one.
//  - rule 5: a gradient stays partial until the end of the step over an axis if all its parts are
//    partial over it and it is a data axis; with zero >= 2 only over reduceAxes.
//  - among sequences of collectives of equal cost and length any is accepted, but equal changes of
//    sharding are made in the same way.
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
  int64_t hostOptimizerState = 0; // in host memory
  bool operator==(const ResidentBytes &o) const {
    return parameters == o.parameters && gradients == o.gradients &&
           optimizerState == o.optimizerState && state == o.state &&
           hostOptimizerState == o.hostOptimizerState;
  }
};

/// Returns the bytes of the slots of a compiled stage.
ResidentBytes residentBytes(const program::Stage &stage);

/// For messages.
std::ostream &operator<<(std::ostream &out, const ResidentBytes &bytes);

/// The most bytes of joined communication, as in a plan; 0: every tensor is alone.
struct JoinedSizes {
  int64_t bucketBytes = 0; // reductions of gradients, and gathers of new parameters
  int64_t gatherBytes = 0; // gathers of stored parameters
};

/// Returns those of `plan`.
JoinedSizes joinedSizes(const planner::Plan &plan);

struct StepSignature {
  /// Merged by kind, axes (in mesh order, joined by "+"), stage and bytes; sorted.
  std::vector<reshard::CollectiveCount> collectives;
  /// Sequences of collectives of equal cost and length: per change of sharding, the lists that each
  /// alternative adds to `collectives`. Equal changes use the same alternative everywhere.
  std::vector<std::vector<std::vector<reshard::CollectiveCount>>> ties;
  std::vector<ResidentBytes> resident; // by stage
  /// A text per move (value, from, to), for messages.
  std::vector<std::string> moves;
};

/// Returns the collectives of one step of `graph` under `assignment` and the resident bytes, per
/// rank of each stage.
///
/// `stateBytesPerElement`: optimizer state per parameter element; a parameter narrower than f32
/// also has a master copy.
/// Aborts with a message if the assignment is unsupported: sub-axes, or a cotangent wanted by a
/// later stage.
StepSignature expectedSignature(const reshard::Graph &graph, const reshard::Assignment &assignment,
                                int64_t stateBytesPerElement, const JoinedSizes &sizes);

/// Returns "" if `actual` is the list of the signature with one alternative of each tie. Else
/// returns one line per collective that is in one list only (using the first alternative of each
/// tie).
std::string difference(const reshard::Mesh &mesh, const StepSignature &expected,
                       const std::vector<reshard::CollectiveCount> &actual);

/// Returns "" if the Program has the collectives and resident bytes that the plan's shardings
/// require. Else returns the differences and the expected moves.
std::string signatureDifference(const driver::CompiledPlan &compiled, const planner::Plan &plan);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_INDEPENDENTCOLLECTIVES_H

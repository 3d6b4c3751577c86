//===- BlockEnds.h - Communication that no kernel of its block hides -------===//

#ifndef TBC_PLANNER_PREDICT_BLOCKENDS_H
#define TBC_PLANNER_PREDICT_BLOCKENDS_H

#include "planner/reshard/Kernels.h"
#include "planner/reshard/Overlap.h"

#include <set>

namespace tbc::planner {

/// Whether ranks along one of `axes` have different tokens.
bool touchesData(const reshard::Mesh &mesh, const std::vector<reshard::AxisRef> &axes);

/// The first gather of stored parameters in each block of forward or backward, and the last
/// reduction over data ranks in each block of backward, each alone or as a bucket. tbc's Programs
/// issue the one before the first kernel that they could run beside it, and the other behind the
/// last. Example: a forward with 32 joint gathers of 3 ms waits 3 ms before its first kernel.
class BlockEnds {
public:
  BlockEnds() = default; // empty
  BlockEnds(const reshard::Mesh &mesh, const reshard::Derivation &derivation,
            const reshard::Overlap &overlap);

  /// `reshard`: as visited by reshard::forEachCollective.
  bool has(const reshard::Reshard &reshard) const { return ends.count(&reshard) > 0; }

private:
  std::set<const reshard::Reshard *> ends; // of a bucket its last member
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_BLOCKENDS_H

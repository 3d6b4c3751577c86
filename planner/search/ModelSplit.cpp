//===- ModelSplit.cpp - The split of ops inside one model replica ---------===//

#include "planner/search/ModelSplit.h"

using namespace tbc::reshard;

namespace tbc::planner {

ModelSplit splitOf(const Candidate &candidate) {
  return {candidate.mesh.tp, candidate.mesh.ep, candidate.mesh.cp, candidate.context};
}

ModelSplit ModelSplit::withoutContext() const { return {tp, ep, 1, ContextForm::AllGather}; }

Mesh ModelSplit::mesh() const {
  MeshShape shape;
  shape.tp = tp;
  shape.ep = ep;
  shape.cp = cp;
  return shape.mesh();
}

} // namespace tbc::planner

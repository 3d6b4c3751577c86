//===- ModelSplit.h - The split of ops inside one model replica -----------===//

#ifndef TBC_PLANNER_SEARCH_MODELSPLIT_H
#define TBC_PLANNER_SEARCH_MODELSPLIT_H

#include "planner/search/Candidate.h"

#include <cstdint>
#include <tuple>

namespace tbc::planner {

/// The split of ops on the devices of one model replica: tensor parallelism (tp), expert
/// parallelism (ep), and context parallelism (cp) with its form. Each rank on ep has a micro-batch
/// of its own.
struct ModelSplit {
  int64_t tp, ep, cp;
  reshard::ContextForm form;

  /// Returns this split without cp.
  ModelSplit withoutContext() const;
  /// Returns the mesh with only the axes ep, cp and tp.
  reshard::Mesh mesh() const;
  bool operator<(const ModelSplit &o) const {
    return std::tie(tp, ep, cp, form) < std::tie(o.tp, o.ep, o.cp, o.form);
  }
};

ModelSplit splitOf(const Candidate &candidate);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_MODELSPLIT_H

//===- ModelNames.h - Display names for the parts of a model --------------===//
//
// Plain C++. Kept beside the graph, because no decision depends on it; plan.json does not have it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_MODELNAMES_H
#define TBC_PLANNER_PLAN_MODELNAMES_H

#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"

#include <map>
#include <string>

namespace tbc::planner {

struct ModelNames {
  /// By op id: the module of the op. Example: "transformer.h.0.attn".
  std::map<std::string, std::string> modules;
  /// By name of a parameter or state: its module path.
  std::map<std::string, std::string> parameters;
};

/// Returns the module of op `op` of `graph`, or of its forward op; empty if unknown.
std::string moduleOf(const Job &job, const reshard::Graph &graph, int op);
/// Returns a value's module path, or else its name.
std::string displayName(const Job &job, const reshard::GraphValue &value);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_MODELNAMES_H

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
  /// By id of a forward op that is in none of `modules`: a module for tables and messages. Pins and
  /// exported layouts do not read it.
  std::map<std::string, std::string> placed;
  /// By name of a parameter or state: its module path.
  std::map<std::string, std::string> parameters;
};

/// A module path up to its first number. Example: "h.3.fc" is number 3 of "h".
struct NumberedModule {
  std::string list;
  int64_t number = -1; // -1: no component of the path is a number
};
NumberedModule numberedModule(const std::string &path);

/// Returns the longest path that has both modules inside. Example: "h.0" of "h.0.attn" and
/// "h.0.mlp".
std::string commonModule(const std::string &a, const std::string &b);

/// Fills `names.placed`. An op without a module is shown in the longest path that has the modules
/// of its readers inside, else in that of its producers. Example: an addition of no module whose
/// result "h.1.ln_1" and "h.1.attn" read is shown in "h.1".
void placeByReaders(const reshard::Graph &graph, ModelNames &names);

/// Returns the module of op `op` of `graph`, or of its forward op; empty if unknown.
std::string moduleOf(const Job &job, const reshard::Graph &graph, int op);
/// Returns the same, or else the module in which `op` is shown (`ModelNames::placed`).
std::string shownModuleOf(const Job &job, const reshard::Graph &graph, int op);
/// Returns a value's module path, or else its name.
std::string displayName(const Job &job, const reshard::GraphValue &value);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_MODELNAMES_H

//===- Stages.h - Pipeline stages of ops -----------------------------------===//

#ifndef TBC_PLANNER_CORE_STAGES_H
#define TBC_PLANNER_CORE_STAGES_H

#include "planner/reshard/Graph.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Sets the chunk of every op, where forward ops `firstOps[c]` up to the next entry are chunk c
/// (firstOps[0] = 0, ascending). A backward op has its forward op's chunk; one without, the chunk
/// of the forward op whose result it is the cotangent of, else the earliest chunk among the
/// producers of its operands, which is where the backward gets to last.
void setChunks(reshard::Graph &graph, const std::vector<int> &firstOps);

/// Per forward op, whether a stage may begin with it: nothing in backward would be wanted by a
/// later stage than the one that makes it (as where a view of a value is made again in backward),
/// and no state be used on another stage than it is updated on. Nor with a generator or the first
/// op that is none: every stage has ops of its own.
std::vector<bool> stageMayBegin(const reshard::Graph &graph);

/// The first op that is no generator.
int firstOwnOp(const reshard::Graph &graph);

/// "" or why the stages of `graph` part a state's uses from its update.
std::string whyStateIsParted(const reshard::Graph &graph);

/// Per op, the forward op that it goes with when stages are cut: itself, its forward op, or as
/// above (never -1).
std::vector<int> forwardAnchors(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_STAGES_H

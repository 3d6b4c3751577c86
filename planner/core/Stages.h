//===- Stages.h - Pipeline stages of ops -----------------------------------===//

#ifndef TBC_PLANNER_CORE_STAGES_H
#define TBC_PLANNER_CORE_STAGES_H

#include "planner/reshard/Chunks.h"

#include <string>
#include <vector>

namespace tbc::planner {

using reshard::forwardAnchors;
using reshard::setChunks;

/// Per forward op, whether a stage may begin with it: nothing in backward would be wanted by a
/// later stage than the one that makes it (as where a view of a value is made again in backward),
/// and no state be used on another stage than it is updated on. Nor with a generator or the first
/// op that is none: every stage has ops of its own.
std::vector<bool> stageMayBegin(const reshard::Graph &graph);

/// The first op that is no generator.
int firstOwnOp(const reshard::Graph &graph);

/// "" or why the stages of `graph` part a state's uses from its update.
std::string whyStateIsParted(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_STAGES_H

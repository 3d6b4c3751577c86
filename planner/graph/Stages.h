//===- Stages.h - Pipeline stages of ops ----------------------------------===//

#ifndef TBC_PLANNER_GRAPH_STAGES_H
#define TBC_PLANNER_GRAPH_STAGES_H

#include "planner/reshard/Chunks.h"

#include <string>
#include <vector>

namespace tbc::planner {

using reshard::forwardAnchors;
using reshard::setChunks;

/// Returns, per forward op, whether a stage may begin with it. A backward value must not be needed
/// on a later stage than its producer's (for example a view rebuilt in backward). A state must be
/// updated on the stage of its uses. Generators and the first other op do not begin a stage, so
/// every stage has ops of its own.
std::vector<bool> stageMayBegin(const reshard::Graph &graph);

/// Returns by op whether it is a backward sum of gradients of a parameter. Each stage has its part
/// of such a sum, so stages do not send its terms (reshard::gradientParts).
std::vector<bool> gradientSums(const reshard::Graph &graph);

/// Returns the first op that is not a generator.
int firstOwnOp(const reshard::Graph &graph);

/// Returns the reason if the stages of `graph` separate a state's uses from its update, else "".
std::string whyStateIsParted(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_STAGES_H

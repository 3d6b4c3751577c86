//===- Recompute.h - Forward ops that the backward executes again ----------===//
//
// Plain C++. A flag per forward op: its results are not kept from forward to backward but computed
// again.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_RECOMPUTE_H
#define TBC_PLANNER_CORE_RECOMPUTE_H

#include "planner/reshard/Chunks.h"
#include "planner/reshard/Recompute.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// The flags, one per op, that `mode` stands for.
///   none       nothing is computed again
///   selective  everything but the results of matmuls, convolutions and attention, values that
///   alone
///              join two parts of the graph, and results much smaller than what they come from
///   full       everything but values that alone join two parts of the graph
std::vector<bool> recomputeFlags(const reshard::Graph &graph, const std::string &mode);

/// Forward ops that it saves time to run again, by op: elementwise, with a result that one op reads
/// in forward and one in backward, both of which may have it in registers then (isFused), made of
/// one activation that takes no more to keep.
std::vector<bool> freeToRecompute(const reshard::Graph &graph);

/// The flags, one per op, of forward ops what is kept of whose results is worth a copy to the host:
/// all but generators and those whose results are much smaller than what they come from.
std::vector<bool> offloadFlags(const reshard::Graph &graph);

using reshard::numForwardOps;
using reshard::reexecutedOps;
using reshard::withRecompute;

/// Forward values that alone carry activations from the ops before a position of the forward order
/// to those after it, by position: cuts[i] is the value between forward op i and the next one, -1
/// if there are none or several. Inputs, parameters and generated values do not count.
std::vector<int> singleValueCuts(const reshard::Graph &graph);

/// Where graph blocks begin that may be recomputed or not: the repeated blocks of the forward
/// order, each from the value that alone carries activations into it; without repeats every such
/// value. Ascending, at least one.
std::vector<int> blockStarts(const reshard::Graph &graph);

/// What a plan says of recomputation: the mode, where only the first `blocks` of the `of` graph
/// blocks do it with their number ("full 40/126": the others do what the next weaker mode does).
std::string recomputeText(const std::string &mode, int64_t blocks, int64_t of);
/// Whether `text` is such a text: none, selective, full, or one of the latter two with numbers.
bool isRecomputeText(const std::string &text);
/// What a plan says of offloaded residuals: "none", "all", or how many of the graph blocks ("3/8").
std::string offloadedBlocks(int64_t blocks, int64_t of);
/// Whether `text` is such a text.
bool isOffloadedBlocks(const std::string &text);
/// The mode that keeps more: selective for full, none for selective.
std::string weakerMode(const std::string &mode);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_RECOMPUTE_H

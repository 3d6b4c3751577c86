//===- Megatron.h - Tensor parallelism as Megatron-LM lays it out ---------===//

#ifndef TBC_PLANNER_PINS_MEGATRON_H
#define TBC_PLANNER_PINS_MEGATRON_H

#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"

#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Returns the allowed splits of each op of `graph` (bits of SplitKind), for Megatron's layout:
/// - A matmul with a parameter is split by columns if its input is whole, else by rows. Example: q,
///   k, v, gate, up by columns; o, down by rows; the head by columns.
/// - The first table that tokens are looked up in is split by rows, the vocabulary, if it can be.
/// - Ops on whole values stay whole, or split the tokens. Ops on split values are free.
///
/// Sets `isMatrix` for the ops that multiply with a parameter. Backward ops follow their forward
/// op.
std::vector<unsigned> megatronSplits(const reshard::Graph &graph, bool splitsTokens,
                                     std::vector<bool> &isMatrix);

/// Returns the sizes of `graph` that tp must divide in Megatron's layout, each once, with a text:
/// - of a matmul with a parameter, the outermost factor of its columns or rows. Example: 768
///   columns of q are 12 heads of 64: {12, "12 groups of 64 columns of h.0.attn.q.weight"}. With
///   grouped queries it is the number of groups;
/// - of a matmul between values (attention), the product of the outer loops that both have: its
///   heads of keys;
/// - the rows of the token table.
///
/// A matrix that cannot be split has the size 1. A model with experts has no such layout: there
/// attention and the table count alone. Source: the calls of divide() in megatron/core, such as
/// num_attention_heads and num_query_groups in transformer/attention.py.
std::vector<std::pair<int64_t, std::string>> megatronSizes(const reshard::Graph &graph,
                                                           const Job &job);

/// Whether the layers of `graph` are Megatron's: tp splits every matrix of a layer, and two of each
/// layer by rows, the last of attention and of the MLP. Layers are the numbered modules of one
/// path; of several paths, the one with the most elements of parameters. True without names of
/// modules.
bool hasMegatronLayers(const reshard::Graph &graph, const Job &job);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_MEGATRON_H

//===- TokenExchange.h - Tokens that travel to their experts --------------===//
//
// Plain C++. Megatron, DeepSpeed and others send each token to the ranks of its experts, and their
// results back. tbc gathers all tokens in place of the first, and sums over all ranks in place of
// the second. So an exchange is a gather or reduce_scatter along the experts' axes of which only a
// share of the rows is needed.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_TOKENEXCHANGE_H
#define TBC_PLANNER_RESHARD_TOKENEXCHANGE_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// The rows that a rank with some of the experts needs.
struct ExpertRows {
  std::vector<AxisRef> axes; // of the experts; empty: they are on every rank
  double share = 1;          // of all rows, on the fullest rank
};

/// Returns the rows of tokens that op `op` needs on a rank. Each token goes once to each of its
/// `copies` experts, even to several on one rank, as by the dispatchers of Megatron. Example: 2 of
/// 8 experts on 8 ranks: 0.25 of all rows; 8 of 128 on 4 ranks: twice all rows. With an imbalance
/// of 1.25, 0.3125 and 2.5.
ExpertRows expertRows(const GraphOp &op, const OpStrategy &strategy);

/// Returns the bytes of KeptRows of forward op `op` for operand `operand` on the fullest rank,
/// where each has `bytes` at home. Example: 2 copies of a row of 4096, each with 3 * 14336 inner
/// values: 23 times the bytes.
int64_t keptRowBytes(const Graph &graph, int op, const OpStrategy &strategy, int operand,
                     int64_t bytes);

/// Whether operand or result `tensor` of `op` has a row per token, whatever its experts.
bool hasRoutedRows(const GraphOp &op, bool isResult, int tensor);

/// Replaces gathers over the axes of `rows` by an exchange Out, and reduce_scatters by one Back.
/// Axes beside them (tp) are gathered after, or reduced before. Returns whether there were any.
///
/// Example: a gather of 64 MiB over ep of 8, of which each rank needs 0.25, becomes an all_to_all
/// of 16 MiB on each rank.
bool exchangeTokens(std::vector<Collective> &steps, const ExpertRows &rows);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_TOKENEXCHANGE_H

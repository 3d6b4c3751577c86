//===- OmitRepeats.h - Which repeated blocks a smaller model can do without ===//

#ifndef TBC_PLANNER_GRAPH_OMITREPEATS_H
#define TBC_PLANNER_GRAPH_OMITREPEATS_H

#include "planner/graph/Fold.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Forward ops that a smaller model does without, and what others read instead of their results.
struct OmittedRepeats {
  struct Read {
    int op = 0, operand = 0;
    int value = -1; // what the operand becomes
  };
  struct Shortened {
    Block block;
    int kept = 0; // occurrences
  };

  std::vector<bool> isOmitted; // by forward op
  std::vector<Read> reads;
  std::vector<Shortened> blocks;
};

/// The decisions on each forward op.
struct OpDecisions {
  std::vector<uint64_t> numbers; // equal for equal decisions, whatever the chunk
  std::vector<int> chunks;
};

/// Omits repeats of equal blocks with equal decisions.
///
/// A *run* is a longest sequence of consecutive occurrences of a block, in one chunk, whose ops
/// have the same kind (`kindOf`, by forward op), sizes and decisions, and corresponding operands:
/// parameters of their own, the same shared value, or values of occurrences at the same distance.
///
/// Of each run the first occurrence and the last stay. The last reads from the first what it read
/// from its neighbour. The longest run of each decision keeps one more, so that one repeat has
/// equal neighbours on both sides. Example: 32 layers on 4 stages with equal decisions are 4 runs
/// of 8, and 3 + 2 + 2 + 2 layers stay. Where decisions alternate, several occurrences are taken as
/// one.
///
/// A block stays whole if one of its omitted values is read by an op without a counterpart in the
/// kept occurrences. Examples: the outputs of all layers are joined; a parameter is shared by some
/// occurrences only.
OmittedRepeats omitRepeats(const reshard::Graph &graph, const std::vector<uint64_t> &kindOf,
                           const OpDecisions &decisions);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_OMITREPEATS_H

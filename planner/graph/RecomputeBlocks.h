//===- RecomputeBlocks.h - Graph blocks recomputed or kept as a whole -----===//

#ifndef TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H
#define TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the first ops of the graph blocks that may be recomputed or kept. These are the repeated
/// blocks of the forward order, each from the value that alone carries activations into it. Without
/// repeats, every such value begins a block. Ascending, at least one.
std::vector<int> blockStarts(const reshard::Graph &graph);

/// The first `blocks` of the `of` graph blocks of a model, or all of them.
struct BlockShare {
  int64_t blocks = 0, of = 0; // both 0: all

  /// Example: share(8, 8) is all.
  static BlockShare share(int64_t blocks, int64_t of) {
    return blocks == of ? BlockShare() : BlockShare{blocks, of};
  }
  bool isAll() const { return of == 0; }
  bool operator==(const BlockShare &o) const { return blocks == o.blocks && of == o.of; }
};

/// How much of the forward is recomputed, from the weakest to the strongest: recomputeFlags().
enum class RecomputeMode { None, Selective, Full };
const std::vector<RecomputeMode> &recomputeModes();
/// Returns the word of flags and of plan.json: "none", "selective", "full".
const char *name(RecomputeMode mode);
/// The inverse of name(); nullopt for any other text.
std::optional<RecomputeMode> parseRecomputeMode(const std::string &word);
/// Returns the mode that keeps more: selective for full, none for selective and for none.
RecomputeMode weakerMode(RecomputeMode mode);

/// The recomputation of a plan: the first blocks use `mode`, the other blocks weakerMode().
struct Recompute {
  RecomputeMode mode = RecomputeMode::None;
  BlockShare share = {};
  bool operator==(const Recompute &o) const { return mode == o.mode && share == o.share; }
};
/// Returns the text of plan.json. Example: "none", "full", "full 40/126" for 40 of 126 blocks.
std::string toString(const Recompute &recompute);
/// The inverse of toString(); nullopt for any other text. Example: "none 1/2" is no such text.
std::optional<Recompute> parseRecompute(const std::string &text);

/// Returns the text of plan.json for offloaded residuals: "none", "all", or the number of graph
/// blocks. Example: "3/8".
std::string residualsText(const std::optional<BlockShare> &residuals);
/// The inverse of residualsText(). Returns false for any other text.
bool parseResiduals(const std::string &text, std::optional<BlockShare> &residuals);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H

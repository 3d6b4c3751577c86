//===- Blocks.h - Parts common to several model families -----------------------===//

#ifndef TBC_TOOLS_NEW_BLOCKS_H
#define TBC_TOOLS_NEW_BLOCKS_H

#include "tools/new/Architecture.h"
#include "tools/new/GraphWriter.h"

namespace tbc::newmodel {

/// Adds the input of token ids. Without a position table (`hasTable`), `positions` is the input
/// length; 0 leaves it open.
std::string inputIds(GraphWriter &w, bool hasTable, int64_t positions);

/// How the scores of an attention are changed.
struct Scores {
  /// A bias to add, or a boolean mask; may be empty.
  std::string bias;
  bool isCausal = true;
  /// 0: 1 / sqrt(width of a head).
  double scale = 0;
};
/// Returns attention of q, k, v, [b, s, heads * width]; with the architecture's soft cap.
std::string attend(GraphWriter &w, const Architecture &a, const std::string &q,
                   const std::string &k, const std::string &v, const Scores &scores = {});

/// Returns the ALiBi term of the scores, [heads, 1, s]: slope times the key's position. Terms equal
/// for all keys of a query cancel in softmax and are left out. Empty without ALiBi.
std::string alibi(GraphWriter &w, const Architecture &a, const std::string &ids);

/// Returns the mask [s, s] of the keys near a query: key q - k < `keys` behind it, or, if not
/// `isCausal`, |q - k| <= `keys`. Example: 2 keys, causal: a query sees itself and the one before.
std::string windowMask(GraphWriter &w, const std::string &ids, int64_t keys, bool isCausal);

/// cos and sin of the rotary angles, [s, width / 2], and the positions, [b, s]. Source: Su et al.,
/// "RoFormer" (2021).
struct Rotary {
  std::string cos, sin, positions;
  int64_t width = 0;
};
/// Returns the number of elements of a head that are rotated.
int64_t rotaryWidth(const Architecture &a);
/// `name`: module of the nodes; `base`: of the frequencies base^(-2i / width).
Rotary rotaryOf(GraphWriter &w, const std::string &name, int64_t width, double base,
                const std::string &ids);
/// Rotates x, [b, s, heads * headWidth]. `isInterleaved`: pairs are neighbours, else halves.
std::string rotate(GraphWriter &w, const Rotary &rotary, const std::string &x, int64_t heads,
                   int64_t headWidth, bool isInterleaved = false);

/// Splits the last dim into consecutive parts of these sizes.
std::vector<std::string> splitInto(GraphWriter &w, const std::string &x, const Ints &sizes);
/// Splits [b, s, 3 * n] into three consecutive parts.
std::vector<std::string> splitInThree(GraphWriter &w, const std::string &x);
/// Splits [b, s, heads * (3 * d)] into q, k and v; the three are interleaved by head.
std::vector<std::string> splitPerHead(GraphWriter &w, const Architecture &a, const std::string &x);

/// Writes the logits of x: by `table` if the architecture is tied, else by a linear layer `head`.
void finish(GraphWriter &w, const Architecture &a, const std::string &x, const std::string &table,
            const std::string &head);

/// Root mean square or layer normalization over the last dim, [.., width], as Architecture::norm
/// says.
std::string normalize(GraphWriter &w, const std::string &x, const std::string &name, int64_t width,
                      const Architecture &a);

/// Writes the experts of a layer: routed ones, and those that compute every token. Returns the
/// MLP's output for x, [b, s, hidden].
std::string mixtureOfExperts(GraphWriter &w, const Architecture &a, const std::string &x);
/// Writes the layers of a MLP with inner width `ffn` into the open module.
std::string mlpLayers(GraphWriter &w, const Architecture &a, const std::string &x, int64_t ffn);

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_BLOCKS_H

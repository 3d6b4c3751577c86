//===- AttentionMask.h - The keys of a query, and their dropout ------------===//
//
// Part of tbc. Internal to the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ATTENTIONMASK_H
#define TBC_RUNTIME_KERNELS_ATTENTIONMASK_H

#include "runtime/kernels/Random.h"
#include "runtime/kernels/Support.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tbc::kernels {

/// The keys of one query.
struct ReadableKeys {
  /// 1 if key j is read.
  std::vector<uint8_t> keys;
  /// Whether all of them have equal weights, for any scores.
  bool isFlat = false;
};

/// The mask of an attention: its attributes and mask operands, as defined in Attention.h.
class AttentionMask {
public:
  /// The number of mask operands for `attrs`.
  static size_t numOperands(const Attrs &attrs);

  /// `inputs` holds them from `first` on. KernelError if their shapes do not fit.
  AttentionMask(const Attrs &attrs, const std::vector<Tensor> &inputs, size_t first, int64_t batch,
                int64_t queries, int64_t keys);

  /// The keys of query `query` of sample `sample`.
  ReadableKeys row(int64_t sample, int64_t query) const;

private:
  enum class HiddenRows { Zero, Mean, Window, Nearest, Scores };

  /// Whether window and order let the query read the key.
  bool isInside(int64_t sample, int64_t query, int64_t key) const;
  /// The number of conditions that hide the key: window and order (one), key mask, segments.
  int violations(int64_t sample, int64_t query, int64_t key) const;

  int64_t queries, keys;
  bool isCausal;
  int64_t left, right;
  /// Empty without such masks: [batch, keys]; [batch, queries] and [batch, keys].
  Tensor keyMask, querySegments, keySegments, queryPositions, keyPositions;
  /// Position ids of the window: [queries] and [keys].
  Tensor queryPlaces, keyPlaces;
  bool hasKeyMask = false, hasSegments = false, isOrdered = false, isPlaced = false;
  HiddenRows hiddenRows;
};

/// The dropout of an attention's weights.
class AttentionDropout {
public:
  /// `inputs` holds its operands, if it has any, from `first` on.
  AttentionDropout(const Attrs &attrs, const std::vector<Tensor> &inputs, size_t first,
                   int64_t batch, int64_t heads, int64_t queries, int64_t keys);
  static size_t numOperands(const Attrs &attrs);

  bool isActive() const { return mask.has_value(); }

  /// Multiplies the weights of one query, one per key; by 1 without dropout.
  template <typename T> void apply(T *weights, int64_t sample, int64_t head, int64_t query) {
    if (!isActive())
      return;
    T factor = integer<T>(1) / real<T>(1 - ratio);
    std::vector<uint8_t> kept = row(sample, head, query);
    for (size_t j = 0; j < kept.size(); ++j)
      weights[j] = kept[j] ? weights[j] * factor : integer<T>(0);
  }

private:
  /// 1 for each key with a remaining weight.
  std::vector<uint8_t> row(int64_t sample, int64_t head, int64_t query);

  double ratio = 0;
  std::optional<DropoutMask> mask;
  std::array<Tensor, 4> indices;
};

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ATTENTIONMASK_H

//===- AttentionMask.h - Which keys a query reads --------------------------===//
//
// Part of tbc. Internal to the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ATTENTIONMASK_H
#define TBC_RUNTIME_KERNELS_ATTENTIONMASK_H

#include "runtime/kernels/Support.h"

#include <cstdint>
#include <vector>

namespace tbc::kernels {

/// The keys that one query reads.
struct ReadableKeys {
  /// 1 where key j is read.
  std::vector<uint8_t> keys;
  /// Whether all of them count alike, whatever their scores.
  bool isFlat = false;
};

/// The mask of an attention: its attributes and mask operands, as Attention.h says.
class AttentionMask {
public:
  /// How many mask operands `attrs` asks for.
  static size_t numOperands(const Attrs &attrs);

  /// `inputs` holds them from `first` on. KernelError if their shapes do not fit.
  AttentionMask(const Attrs &attrs, const std::vector<Tensor> &inputs, size_t first, int64_t batch,
                int64_t queries, int64_t keys);

  /// What query `query` of sample `sample` reads.
  ReadableKeys row(int64_t sample, int64_t query) const;

private:
  enum class HiddenRows { Zero, Mean, Nearest, Scores };

  bool isInside(int64_t query, int64_t key) const;
  /// Of window and order, key mask, and segments, those that hide the key.
  int violations(int64_t sample, int64_t query, int64_t key) const;

  int64_t queries, keys;
  bool isCausal;
  int64_t left, right;
  /// Empty where the attention has none: [batch, keys]; [batch, queries] and [batch, keys].
  Tensor keyMask, querySegments, keySegments, queryPositions, keyPositions;
  bool hasKeyMask = false, hasSegments = false, isOrdered = false;
  HiddenRows hiddenRows;
};

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ATTENTIONMASK_H

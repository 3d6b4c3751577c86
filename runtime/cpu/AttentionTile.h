//===- AttentionTile.h - The keys that a tile of queries reads ------------===//
//
// Part of tbc. Plain C++. runtime/kernels/Attention.h defines the masking conditions.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_ATTENTIONTILE_H
#define TBC_RUNTIME_CPU_ATTENTIONTILE_H

#include "runtime/cpu/NativeKernel.h"
#include "runtime/kernels/Random.h"

#include <optional>

namespace tbc::cpu {

/// Queries and keys processed at a time. Scores of 64 x 256 floats stay in the second-level cache
/// beside their operands.
inline constexpr int64_t tileQueries = 64, tileKeys = 256;

/// The masking attributes of an attention: the keys that each query reads, and the indices of the
/// mask operands.
class AttentionMasking {
public:
  AttentionMasking(const kernels::Attrs &attrs, const Types &operands, size_t firstMask,
                   int64_t queries, int64_t keys);

  /// Whether the mask operands are integers of the required width.
  bool isSupported() const { return isWide; }

private:
  friend class AttentionTile;
  enum class HiddenRows { Zero, Mean, Window, Nearest, Scores };

  int64_t queries, keys;
  bool isCausal;
  int64_t left, right;
  HiddenRows hiddenRows = HiddenRows::Zero;
  /// Index of each operand; -1 if it is absent.
  int keyMask = -1, segments = -1, order = -1, places = -1, dropout = -1;
  double ratio = 0;
  int64_t seed = 0, key = 0;
  bool isWide = true;
};

/// A range of queries of one sample.
class AttentionTile {
public:
  AttentionTile(const AttentionMasking &masking, const Buffers &buffers, int64_t sample,
                int64_t firstQuery, int64_t rows);

  /// Every key read by any of the queries lies in [firstKey, endKey).
  int64_t firstKey() const { return begin; }
  int64_t endKey() const { return end; }

  /// Whether the query gives equal weight to all keys that it reads (z = 0).
  bool isFlat(int64_t row) const { return !flat.empty() && flat[size_t(row)]; }

  /// Masks the scores of keys [key, key + count). Scores of keys that the query does not read
  /// become `hidden`. If the row is flat, the other scores become 0. Returns whether the query
  /// reads any of these keys.
  bool mask(int64_t row, int64_t key, int64_t count, float *scores, float hidden) const;

  /// Applies dropout to weights of keys [key, key + count), in rows of `tileKeys`.
  void drop(int64_t head, int64_t key, int64_t count, float *weights);

private:
  struct Range {
    int64_t begin, end;
  };

  Range windowOf(int64_t query, const int64_t *queryPlaces, const int64_t *keyPlaces) const;
  bool takeRanges();
  void takeConditions();
  template <typename T> const T *operand(int index, int64_t offset = 0) const {
    return buffers.operand<T>(size_t(index)) + offset;
  }

  const AttentionMasking &masking;
  const Buffers &buffers;
  int64_t sample, first, rows;
  int64_t begin = 0, end = 0;
  std::vector<Range> ranges;  // by row; only if the window is the only condition
  std::vector<uint8_t> keeps; // by row and key; otherwise
  std::vector<uint8_t> flat;
  std::optional<kernels::DropoutMask> dropped;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_ATTENTIONTILE_H

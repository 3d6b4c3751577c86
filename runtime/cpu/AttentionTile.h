//===- AttentionTile.h - What a tile of queries reads ---------------------------===//
//
// Part of tbc. Plain C++. The conditions stand in runtime/kernels/Attention.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_ATTENTIONTILE_H
#define TBC_RUNTIME_CPU_ATTENTIONTILE_H

#include "runtime/cpu/NativeKernel.h"
#include "runtime/kernels/Random.h"

#include <optional>

namespace tbc::cpu {

/// Queries and keys that are worked on at a time: scores of 64 x 256 floats stay in the cache of
/// the second level beside what they are made of.
inline constexpr int64_t tileQueries = 64, tileKeys = 256;

/// The attributes of an attention that say which keys a query reads, and which operands they have.
class AttentionMasking {
public:
  AttentionMasking(const kernels::Attrs &attrs, const Types &operands, size_t firstMask,
                   int64_t queries, int64_t keys);

  /// Whether the operands are integers as wide as the conditions ask for.
  bool isSupported() const { return isWide; }

private:
  friend class AttentionTile;
  enum class HiddenRows { Zero, Mean, Window, Nearest, Scores };

  int64_t queries, keys;
  bool isCausal;
  int64_t left, right;
  HiddenRows hiddenRows = HiddenRows::Zero;
  /// Where the operands stand; -1 for those that there are not.
  int keyMask = -1, segments = -1, order = -1, places = -1, dropout = -1;
  double ratio = 0;
  int64_t seed = 0, key = 0;
  bool isWide = true;
};

/// Some queries of one sample.
class AttentionTile {
public:
  AttentionTile(const AttentionMasking &masking, const Buffers &buffers, int64_t sample,
                int64_t firstQuery, int64_t rows);

  /// The keys that any of the queries reads lie in [firstKey, endKey).
  int64_t firstKey() const { return begin; }
  int64_t endKey() const { return end; }

  /// Whether the query takes all keys that it reads alike: z = 0.
  bool isFlat(int64_t row) const { return !flat.empty() && flat[size_t(row)]; }

  /// Sets the scores of keys [key, key + count) that the query does not read to `hidden`, and where
  /// it is flat those that it reads to 0. Whether it reads any of them.
  bool mask(int64_t row, int64_t key, int64_t count, float *scores, float hidden) const;

  /// Multiplies weights by what dropout makes of them: rows of `tileKeys`, for keys [key, key +
  /// count).
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
  std::vector<Range> ranges;  // by row; where a window is all there is
  std::vector<uint8_t> keeps; // by row and key, else
  std::vector<uint8_t> flat;
  std::optional<kernels::DropoutMask> dropped;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_ATTENTIONTILE_H

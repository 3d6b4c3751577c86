//===- RowSums.h - Launches and memory of sums by rows on GPUs --------------===//
//
// Plain C++. The kernel of embedding_grad and scatter_add (codegen/cuda/ops/RowSums.cpp) has these
// launches and this memory between them, and the planner counts both.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_ROWSUMS_H
#define TBC_IR_ROWSUMS_H

#include <cstdint>

namespace tbc {

/// Updates [outer][count][width] are added to rows of a table [outer][rows][width].
struct RowSumSizes {
  int64_t outer = 1, rows = 1, width = 1, count = 1;

  static constexpr int64_t comparedUpdates = 32; // at most, without sorting
  static constexpr int64_t sortedAtOnce = 128;   // keys
  static constexpr int64_t mostRuns = 16;        // that one launch merges
  static constexpr int64_t groupSize = 32;       // updates that are summed ahead
  static constexpr int64_t alignment = 256;

  bool sorts() const { return count > comparedUpdates; }
  /// Returns the number of launches: one without sorting; else keys, sorted groups, merges, starts
  /// with the sums of groups, rows. Example: 16,384 updates are 128 groups, which take 2 merges: 6.
  int64_t launches() const {
    if (!sorts())
      return 1;
    int64_t merges = 0;
    for (int64_t run = sortedAtOnce; run < count; run *= mostRuns)
      ++merges;
    return 4 + merges;
  }

  int64_t numGroups() const { return count / groupSize; }
  /// Bytes of two lists of keys.
  int64_t keyBytes() const { return 2 * count * int64_t(sizeof(int64_t)); }
  /// The offset of the sums of groups, behind the keys and the start of every row.
  int64_t sumsOffset() const {
    const int64_t bytes = keyBytes() + (rows + 1) * int64_t(sizeof(int32_t));
    return (bytes + alignment - 1) / alignment * alignment;
  }
  /// Bytes between the launches. Example: 16,384 updates of 768 columns for 50,304 rows: 0.25 MiB
  /// of keys, 0.19 MiB of starts and 1.5 MiB of sums.
  int64_t workspaceBytes() const {
    return sorts() ? sumsOffset() + numGroups() * outer * width * int64_t(sizeof(float)) : 0;
  }
};

} // namespace tbc

#endif // TBC_IR_ROWSUMS_H

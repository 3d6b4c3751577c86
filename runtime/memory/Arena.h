//===- Arena.h - Buffers with offsets in one piece of memory ---------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (memory of a step) and by the compiler
// (offsets of all buffers).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MEMORY_ARENA_H
#define TBC_RUNTIME_MEMORY_ARENA_H

#include <cstdint>
#include <vector>

namespace tbc::memory {

/// Every buffer of an arena begins at a multiple of this many bytes: the guarantee of cudaMalloc
/// ("aligned to at least 256 bytes", CUDA C++ Programming Guide, device memory accesses). It covers
/// the needs of vector loads, tensor cores and collective libraries.
inline constexpr int64_t alignmentBytes = 256;

/// The bytes of a buffer of `bytes` in an arena: the next multiple of alignmentBytes.
constexpr int64_t alignedBytes(int64_t bytes) {
  return (bytes + alignmentBytes - 1) / alignmentBytes * alignmentBytes;
}

/// A buffer with contents from time `first` to time `last`, both included. Times are any ordered
/// numbers. Two buffers may share bytes if the last of one is before the first of the other.
/// Example: [0, 2] and [3, 5] may.
struct Lifetime {
  int64_t bytes = 0; // >= 0
  int64_t first = 0, last = 0;
};

struct Layout {
  std::vector<int64_t> offsets; // by lifetime; multiples of alignmentBytes
  int64_t bytes = 0;            // of the arena
};

/// The largest sum of aligned bytes live at one time, a lower bound for every layout.
/// Example: 256 bytes over [0, 2] and 512 bytes over [2, 3] give 768, at time 2.
int64_t mostLiveBytes(const std::vector<Lifetime> &lifetimes);

/// Returns offsets such that two buffers live at one time share no bytes. Minimising the arena
/// is NP-hard, so the smallest of three heuristics is taken. A layout that reaches
/// `mostLiveBytes` ends the search.
///
/// (1) Best fit: in order of time, into the smallest hole of sufficient size.
/// (2) By falling bytes, each as low as the earlier buffers allow.
/// (3) By falling bytes x time, likewise.
///
/// The last two run if at most 2^24 pairs of buffers are live together. Deterministic; about
/// O(n log n), more with many holes. Source: Pisarchyk and Lee, "Efficient Memory Management for
/// Deep Neural Net Inference", MLSys 2020 workshop ("greedy by size").
Layout assignOffsets(const std::vector<Lifetime> &lifetimes);

struct FrameLayout {
  /// For each frame: the instance of micro-batch m begins at offsets[m mod offsets.size()].
  std::vector<std::vector<int64_t>> offsets;
  int64_t bytes = 0;
};

/// Returns offsets for frames. frames[f][m] is the instance of frame f for micro-batch m; its size
/// is the same for all m. An instance with last < first is never live. Every frame becomes a
/// ring with the fewest instances n such that micro-batch m can use instance m mod n. If all rings
/// together exceed the bytes live at one time, `assignOffsets` of all instances is tried,
/// and the smaller layout is taken. The bytes do not depend on the order of the frames, because the
/// planner does not have them in the order of a Program.
///
/// Example: micro-batches live over [0, 2], [1, 3], [4, 6] and [5, 7] need a ring of 2.
FrameLayout layOutFrames(const std::vector<std::vector<Lifetime>> &frames);

} // namespace tbc::memory

#endif // TBC_RUNTIME_MEMORY_ARENA_H

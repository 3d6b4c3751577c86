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

/// The bytes that a buffer of `bytes` takes in an arena: the next multiple of alignmentBytes.
constexpr int64_t alignedBytes(int64_t bytes) {
  return (bytes + alignmentBytes - 1) / alignmentBytes * alignmentBytes;
}

/// A buffer that must keep its contents from time `first` to time `last`, both included. Times are
/// any ordered numbers. Two buffers may share bytes if one's last is before the other's first.
/// Example: [0, 2] and [3, 5] may.
struct Lifetime {
  int64_t bytes = 0; // >= 0
  int64_t first = 0, last = 0;
};

struct Layout {
  std::vector<int64_t> offsets; // by lifetime; multiples of alignmentBytes
  int64_t bytes = 0;            // of the arena
};

/// The largest sum of aligned bytes that are live at one time: a lower bound for every layout.
int64_t mostLiveBytes(const std::vector<Lifetime> &lifetimes);

/// Offsets such that two buffers that are live at one time share no bytes. Minimising the arena is
/// NP-hard; the smallest of three heuristics is taken, the first that reaches mostLiveBytes at
/// once:
///  1. in order of time, into the smallest hole that is large enough;
///  2. by falling bytes, 3. by falling bytes x time, each as low as the buffers before it allow.
/// The latter two run if at most 2^24 pairs of buffers are live together.
/// Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
/// Net Inference", MLSys 2020 workshop ("greedy by size"). About O(n
/// log n), more with many holes. Deterministic.
/// `enough`: the first layout of at most this many bytes
/// is taken.
Layout assignOffsets(const std::vector<Lifetime> &lifetimes, int64_t enough = 0);

struct FrameLayout {
  /// By frame: the instance of micro-batch m begins at offsets[m mod the number of offsets].
  std::vector<std::vector<int64_t>> offsets;
  int64_t bytes = 0;
};

/// Offsets for frames, each with one instance per micro-batch: frames[f][m], of one size for all m.
/// An instance that is never live has last < first. Every frame becomes a ring of the fewest
/// instances n such that micro-batch m may use instance m mod n. If all rings together take more
/// than is ever live, all instances are laid out by assignOffsets if that takes less.
FrameLayout layOutFrames(const std::vector<std::vector<Lifetime>> &frames);

} // namespace tbc::memory

#endif // TBC_RUNTIME_MEMORY_ARENA_H

//===- Arena.h - Buffers with offsets in one piece of memory ---------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (what a step will take) and by the
// compiler (where everything lies).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MEMORY_ARENA_H
#define TBC_RUNTIME_MEMORY_ARENA_H

#include <cstdint>
#include <vector>

namespace tbc::memory {

/// Every buffer of an arena begins at a multiple of this many bytes: what cudaMalloc guarantees
/// ("aligned to at least 256 bytes", CUDA C++ Programming Guide, device memory accesses), and with
/// it what vector loads, tensor cores and collective libraries ask for at most.
inline constexpr int64_t alignmentBytes = 256;

/// The bytes that a buffer of `bytes` takes in an arena: the next multiple of alignmentBytes.
constexpr int64_t alignedBytes(int64_t bytes) {
  return (bytes + alignmentBytes - 1) / alignmentBytes * alignmentBytes;
}

/// A buffer that must keep its contents from time `first` to time `last`, both included. Times are
/// any numbers that order what happens: two buffers may share bytes if one's last comes before the
/// other's first.
struct Lifetime {
  int64_t bytes = 0; // >= 0
  int64_t first = 0, last = 0;
};

struct Layout {
  std::vector<int64_t> offsets; // by lifetime; multiples of alignmentBytes
  int64_t bytes = 0;            // of the arena
};

/// The most bytes, each buffer's aligned, that are live at one time: no layout is smaller.
int64_t mostLiveBytes(const std::vector<Lifetime> &lifetimes);

/// Offsets such that no two buffers share bytes at a time when both are live. Minimising the arena
/// is NP-hard; the smallest of three heuristics is taken, the first that reaches mostLiveBytes at
/// once:
///  1. in order of time, into the smallest hole that is large enough;
///  2. by falling bytes, 3. by falling bytes x time, each as low as the buffers before it allow.
/// The latter two are tried where at most 2^24 pairs of buffers are live together. Source:
/// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", MLSys 2020
/// workshop
/// ("greedy by size").
/// About O(n log n), more where what is taken has many holes. Deterministic.
/// `enough`: a smaller arena is of no use, so the first of at most so many bytes is taken.
Layout assignOffsets(const std::vector<Lifetime> &lifetimes, int64_t enough = 0);

struct FrameLayout {
  /// By frame: the instance of micro-batch m begins at offsets[m mod the number of offsets].
  std::vector<std::vector<int64_t>> offsets;
  int64_t bytes = 0;
};

/// Offsets for frames, each with one instance per micro-batch: frames[f][m], of one size for all m.
/// An instance that is never live has last < first. Every frame becomes a ring of as few instances
/// as allow the one of micro-batch m to have number m mod that; where all rings together take more
/// than is ever live, all instances are laid out by assignOffsets if that takes less.
FrameLayout layOutFrames(const std::vector<std::vector<Lifetime>> &frames);

} // namespace tbc::memory

#endif // TBC_RUNTIME_MEMORY_ARENA_H

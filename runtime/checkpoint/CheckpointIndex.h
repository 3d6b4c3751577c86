//===- CheckpointIndex.h - The text of index.json --------------------------===//
//
// Part of tbc. Internal to runtime/checkpoint.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CHECKPOINT_CHECKPOINTINDEX_H
#define TBC_RUNTIME_CHECKPOINT_CHECKPOINTINDEX_H

#include "runtime/checkpoint/Checkpoint.h"

namespace tbc::checkpoint {

inline constexpr int indexVersion = 1;
inline constexpr const char *indexFile = "index.json";

struct ShardInfo {
  std::string file, sha256;
  int64_t bytes = 0;
};

struct Index {
  Progress progress;
  kernels::Arith arith = kernels::Arith::Native;
  program::Mesh mesh;
  std::vector<ShardInfo> shards; // by rank
  std::vector<StoredTensor> tensors;
};

/// "rank-00003.safetensors".
std::string shardName(int64_t rank);

/// The name, in a rank's file, of what it keeps back of compressed gradients at this place.
std::string residualName(const std::string &place);

/// Which group of each factor, and of the flat cut, a rank is: ranks with the same list hold the
/// same elements.
std::vector<int64_t> placeIn(const program::Mesh &mesh, const program::Piece &piece, int64_t rank);

/// Canonical JSON, closed by a SHA-256 of what stands before.
std::string writeIndex(const Index &index);
/// The inverse; a sentence saying what is wrong in place of an index.
Result<Index> readIndex(std::string_view text);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_CHECKPOINTINDEX_H

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

/// Returns, for example, "rank-00003.safetensors".
std::string shardName(int64_t rank);

/// Returns the name, in a rank's file, of the residual of compressed gradients at this place.
std::string residualName(const std::string &place);

/// Returns a rank's group index for each factor, and for the flat cut. Ranks with equal lists hold
/// the same elements.
std::vector<int64_t> placeIn(const program::Mesh &mesh, const program::Piece &piece, int64_t rank);

/// Writes canonical JSON, followed by a SHA-256 of the text before it.
std::string writeIndex(const Index &index);
/// Inverts `writeIndex`. The error is a sentence about the defect.
Result<Index> readIndex(std::string_view text);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_CHECKPOINTINDEX_H

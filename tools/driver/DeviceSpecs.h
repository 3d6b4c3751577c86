//===- DeviceSpecs.h - Shardings in the terms of ONNX's annotations ---------===//

#ifndef TBC_TOOLS_DRIVER_DEVICESPECS_H
#define TBC_TOOLS_DRIVER_DEVICESPECS_H

#include "frontend/onnx/DeviceAnnotations.h"
#include "planner/reshard/Graph.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::driver {

/// A sharding of a tensor in a graph, as ONNX writes it: frontend::TensorShards without names.
struct DeviceSpec {
  std::map<int64_t, std::vector<frontend::ShardedPart>> dims; // sharded dims only
  std::vector<std::vector<int64_t>> groups;                   // ranks by shard, ascending
};

/// Returns the form of `sharding` on pipeline stage `stage`. `pipelineAxis`: of `mesh`, or -1.
/// Partial sums have none and are left out.
///
/// Example: a dim of 64 over tp=2 of a mesh fsdp=2, tp=2 is {{64, 2}} with the groups {0, 2} and
/// {1, 3}.
DeviceSpec deviceSpecOf(const reshard::TensorLayout &layout, const reshard::Sharding &sharding,
                        const reshard::Mesh &mesh, int pipelineAxis, int stage);

/// One sharded factor of a dim: every `period` elements are cut into `shards` contiguous parts.
using DimTiling = std::vector<std::pair<int64_t, int64_t>>;

/// Returns the tiling of a dim of `size` elements. Example: 12 blocks of 64 over 4 shards are
/// {{768, 4}}, as is a dim of 768 over 4. A part without a size takes what the others leave.
DimTiling tilingOf(std::vector<frontend::ShardedPart> parts, int64_t size);

/// Ops of a graph by the ONNX node that they come from, in the order of the graph.
///
/// Example: ops "addmm", "addmm.1.1" and "addmm.2" come from the node "addmm".
std::map<std::string, std::vector<int>> opsByNode(const reshard::Graph &graph,
                                                  const std::vector<std::string> &nodes);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_DEVICESPECS_H

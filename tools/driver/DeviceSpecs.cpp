//===- DeviceSpecs.cpp - Shardings in the terms of ONNX's annotations -------===//

#include "tools/driver/DeviceSpecs.h"

#include "planner/reshard/Chunks.h"

#include <set>

using namespace tbc::reshard;

namespace tbc::driver {

using frontend::ShardedPart;

/// Returns the parts of a sharded dim: its segments, and the factors of one.
static std::vector<ShardedPart> partsOf(const DimLayout &layout, const Sharding &sharding, int dim,
                                        std::vector<AxisRef> &axes) {
  std::vector<ShardedPart> parts;
  if (layout.segments.size() > 1)
    parts.push_back({int64_t(layout.segments.size()), 1});
  for (const Factor &factor : layout.segments.front().factors) {
    const FactorSharding *entry = find(sharding, dim, factor.id);
    const bool joins = !entry && !parts.empty() && parts.back().shards == 1 &&
                       (parts.size() > 1 || layout.segments.size() == 1);
    if (joins) { // whole factors that follow each other are one
      parts.back().size *= factor.size;
      continue;
    }
    parts.push_back({factor.size, entry ? groupSize(entry->axes) : 1});
    if (entry)
      axes.insert(axes.end(), entry->axes.begin(), entry->axes.end());
  }
  return parts;
}

DeviceSpec deviceSpecOf(const TensorLayout &layout, const Sharding &sharding, const Mesh &mesh,
                        int pipelineAxis, int stage) {
  DeviceSpec spec;
  std::vector<AxisRef> axes;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    bool isSharded = false;
    for (const FactorSharding &entry : sharding.factors)
      isSharded |= entry.dim == int(dim);
    if (isSharded)
      spec.dims[int64_t(dim)] = partsOf(layout.dims[dim], sharding, int(dim), axes);
  }
  spec.groups.resize(size_t(groupSize(axes)));
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    const std::vector<int64_t> coordinates = mesh.coordinates(rank);
    if (pipelineAxis < 0 || coordinates[size_t(pipelineAxis)] == stage)
      spec.groups[size_t(groupIndex(mesh, axes, coordinates))].push_back(rank);
  }
  return spec;
}

DimTiling tilingOf(std::vector<ShardedPart> parts, int64_t size) {
  int64_t given = 1;
  ShardedPart *open = nullptr;
  for (ShardedPart &part : parts) {
    if (part.size > 0)
      given *= part.size;
    else
      open = &part;
  }
  if (open)
    open->size = given > 0 ? size / given : size;
  DimTiling tiling;
  int64_t period = size;
  for (const ShardedPart &part : parts) {
    if (part.shards > 1)
      tiling.push_back({period, part.shards});
    period = part.size > 0 ? period / part.size : period;
  }
  return tiling;
}

std::map<std::string, std::vector<int>> opsByNode(const Graph &graph,
                                                  const std::vector<std::string> &nodes) {
  const std::set<std::string> known(nodes.begin(), nodes.end());
  std::map<std::string, std::vector<int>> ops;
  for (int op = 0; op < numForwardOps(graph); ++op) {
    std::string name = graph.ops[op].id;
    while (!known.count(name)) {
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos ||
          name.find_first_not_of("0123456789", dot + 1) != std::string::npos)
        break;
      name.resize(dot);
    }
    if (known.count(name) && !graph.ops[op].generator)
      ops[name].push_back(op);
  }
  return ops;
}

} // namespace tbc::driver

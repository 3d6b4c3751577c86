//===- Simulator.cpp - Collectives on many ranks, on plain numbers ---------===//

#include "tests/planner/reshard/Simulator.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>

namespace tbc::reshard::test {

static int64_t product(const std::vector<int64_t> &sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

/// Appends the rank's global indices within one segment, starting at `base`. Each factor
/// contributes the digits of its share.
static void appendSegment(const Mesh &mesh, const Segment &segment, const Sharding &sharding,
                          int dim, const std::vector<int64_t> &coordinates, int64_t base,
                          std::vector<int64_t> &result) {
  std::vector<int64_t> indices = {0};
  for (const Factor &factor : segment.factors) {
    int64_t first = 0, count = factor.size;
    if (const FactorSharding *f = find(sharding, dim, factor.id)) {
      count = factor.size / groupSize(f->axes);
      first = count * groupIndex(mesh, f->axes, coordinates);
    }
    std::vector<int64_t> next;
    next.reserve(indices.size() * count);
    for (int64_t index : indices)
      for (int64_t k = 0; k < count; ++k)
        next.push_back(index * factor.size + first + k);
    indices = std::move(next);
  }
  for (int64_t index : indices)
    result.push_back(base + index);
}

std::vector<int64_t> localIndices(const Mesh &mesh, const TensorLayout &layout,
                                  const Sharding &sharding, int dim,
                                  const std::vector<int64_t> &coordinates) {
  std::vector<int64_t> result;
  int64_t base = 0;
  for (const Segment &segment : layout.dims[dim].segments) {
    appendSegment(mesh, segment, sharding, dim, coordinates, base, result);
    base += segment.numElements();
  }
  return result;
}

int64_t valueOf(int64_t globalIndex) { return (globalIndex + 1) * 7919 % 100003 + 1; }

static std::vector<AxisRef> partialAxes(const Sharding &sharding) {
  std::vector<AxisRef> axes;
  for (const Partial &p : sharding.partial)
    axes.push_back(p.axis);
  return axes;
}

static bool isMax(const Sharding &sharding) {
  return !sharding.partial.empty() && sharding.partial.front().kind == ReduceKind::Max;
}

/// Returns the global linear indices of a rank's elements before flattening, row-major.
static std::vector<int64_t> globalIndices(const Mesh &mesh, const TensorLayout &layout,
                                          const Sharding &sharding,
                                          const std::vector<int64_t> &coordinates) {
  std::vector<int64_t> result = {0};
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    std::vector<int64_t> mine =
        localIndices(mesh, layout, sharding, static_cast<int>(dim), coordinates);
    std::vector<int64_t> next;
    for (int64_t base : result)
      for (int64_t i : mine)
        next.push_back(base * layout.dims[dim].numElements() + i);
    result = std::move(next);
  }
  return result;
}

/// Cuts chunk `index` of `n` out of the padded flat data. -1 marks padding.
static std::vector<int64_t> chunkOf(std::vector<int64_t> flat, int64_t n, int64_t index) {
  int64_t chunk = (static_cast<int64_t>(flat.size()) + n - 1) / n;
  flat.resize(n * chunk, -1);
  return {flat.begin() + index * chunk, flat.begin() + (index + 1) * chunk};
}

/// Returns the indices of a rank's elements, flattened if the sharding is flat; -1 for padding.
static std::vector<int64_t> heldIndices(const Mesh &mesh, const TensorLayout &layout,
                                        const Sharding &sharding,
                                        const std::vector<int64_t> &coordinates) {
  std::vector<int64_t> indices = globalIndices(mesh, layout, sharding, coordinates);
  if (sharding.flat.empty())
    return indices;
  return chunkOf(indices, groupSize(sharding.flat), groupIndex(mesh, sharding.flat, coordinates));
}

/// Returns part `index` of `n` of a partial value: arbitrary, but the parts reduce to the value.
static int64_t partOf(int64_t value, int64_t globalIndex, int64_t index, int64_t n, bool maximum) {
  auto noise = [&](int64_t i) { return (globalIndex * 31 + i * 17 + 5) % 1009; };
  if (maximum)
    return index == globalIndex % n ? value : value - 1 - noise(index);
  if (index < n - 1)
    return noise(index);
  for (int64_t i = 0; i < n - 1; ++i)
    value -= noise(i);
  return value;
}

std::vector<LocalTensor> distribute(const Mesh &mesh, const TensorLayout &layout,
                                    const Sharding &sharding, const Values &values) {
  std::vector<LocalTensor> ranks;
  std::vector<AxisRef> partial = partialAxes(sharding);
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    std::vector<int64_t> coordinates = mesh.coordinates(rank);
    LocalTensor local{localShape(layout, sharding), {}};
    for (int64_t i : heldIndices(mesh, layout, sharding, coordinates))
      local.data.push_back(i < 0 ? 0
                                 : partOf(values(i), i, groupIndex(mesh, partial, coordinates),
                                          groupSize(partial), isMax(sharding)));
    EXPECT_EQ(static_cast<int64_t>(local.data.size()), product(local.shape));
    ranks.push_back(std::move(local));
  }
  return ranks;
}

//===----------------------------------------------------------------------===//
// The collectives
//===----------------------------------------------------------------------===//

/// For every element of a full dim: the group index of its rank and its position in the local dim.
static std::vector<std::pair<int64_t, int64_t>>
ownersAlong(const std::vector<SegmentShape> &segments, int64_t n) {
  std::vector<std::pair<int64_t, int64_t>> result;
  int64_t base = 0;
  for (const SegmentShape &s : segments) {
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t k = 0; k < n * s.k; ++k)
        for (int64_t i = 0; i < s.inner; ++i)
          result.push_back({k / s.k, base + (o * s.k + k % s.k) * s.inner + i});
    base += s.outer * s.k * s.inner;
  }
  return result;
}

static int64_t localSize(const std::vector<SegmentShape> &segments) {
  int64_t sum = 0;
  for (const SegmentShape &s : segments)
    sum += s.outer * s.k * s.inner;
  return sum;
}

/// The elements before, of and after dim `dim`.
struct Strides {
  int64_t before = 1, size = 1, after = 1;
};
static Strides stridesOf(const std::vector<int64_t> &shape, int dim) {
  Strides s;
  for (size_t i = 0; i < shape.size(); ++i)
    (static_cast<int>(i) < dim    ? s.before
     : static_cast<int>(i) == dim ? s.size
                                  : s.after) *= shape[i];
  return s;
}

using Group = std::vector<LocalTensor *>; // by group index

static LocalTensor gather(const Group &group, int dim, const std::vector<SegmentShape> &segments) {
  LocalTensor full{group[0]->shape, {}};
  EXPECT_EQ(full.shape[dim], localSize(segments));
  auto owners = ownersAlong(segments, static_cast<int64_t>(group.size()));
  Strides s = stridesOf(full.shape, dim);
  full.shape[dim] = static_cast<int64_t>(owners.size());
  for (int64_t b = 0; b < s.before; ++b)
    for (auto [owner, place] : owners)
      for (int64_t a = 0; a < s.after; ++a)
        full.data.push_back(group[owner]->data[(b * s.size + place) * s.after + a]);
  return full;
}

static LocalTensor slice(const LocalTensor &full, int64_t n, int64_t index, int dim,
                         const std::vector<SegmentShape> &segments) {
  LocalTensor local{full.shape, {}};
  auto owners = ownersAlong(segments, n);
  EXPECT_EQ(full.shape[dim], static_cast<int64_t>(owners.size()));
  local.shape[dim] = localSize(segments);
  Strides s = stridesOf(full.shape, dim);
  for (int64_t b = 0; b < s.before; ++b)
    for (int64_t p = 0; p < s.size; ++p)
      for (int64_t a = 0; a < s.after && owners[p].first == index; ++a)
        local.data.push_back(full.data[(b * s.size + p) * s.after + a]);
  return local;
}

static LocalTensor sum(const Group &group, ReduceKind kind) {
  LocalTensor result = *group[0];
  for (size_t g = 1; g < group.size(); ++g)
    for (size_t i = 0; i < result.data.size(); ++i)
      result.data[i] = kind == ReduceKind::Max ? std::max(result.data[i], group[g]->data[i])
                                               : result.data[i] + group[g]->data[i];
  return result;
}

static LocalTensor flatChunk(const LocalTensor &full, int64_t n, int64_t index, int64_t chunk) {
  LocalTensor local{{chunk}, full.data};
  EXPECT_EQ((static_cast<int64_t>(full.data.size()) + n - 1) / n, chunk);
  local.data.resize(n * chunk, 0);
  local.data = {local.data.begin() + index * chunk, local.data.begin() + (index + 1) * chunk};
  return local;
}

static LocalTensor flatGather(const Group &group, int64_t numElements,
                              const std::vector<int64_t> &shape) {
  LocalTensor full{shape, {}};
  for (const LocalTensor *local : group)
    full.data.insert(full.data.end(), local->data.begin(), local->data.end());
  full.data.resize(numElements);
  EXPECT_EQ(product(shape), numElements);
  return full;
}

static LocalTensor resultOn(const Collective &c, const Group &group, int64_t index,
                            const std::vector<int64_t> &shapeAfter) {
  int64_t n = static_cast<int64_t>(group.size());
  const LocalTensor &mine = *group[index];
  switch (c.kind) {
  case CollectiveKind::AllReduce:
    return sum(group, c.reduce);
  case CollectiveKind::AllGather:
    return c.dim < 0 ? flatGather(group, c.numElements, shapeAfter)
                     : gather(group, c.dim, c.segments);
  case CollectiveKind::ReduceScatter:
    return c.dim < 0 ? flatChunk(sum(group, ReduceKind::Sum), n, index, c.segments[0].k)
                     : slice(sum(group, ReduceKind::Sum), n, index, c.dim, c.segments);
  case CollectiveKind::ShardSlice:
    return c.dim < 0 ? flatChunk(mine, n, index, c.segments[0].k)
                     : slice(mine, n, index, c.dim, c.segments);
  case CollectiveKind::AllToAll:
    return slice(gather(group, c.dim, c.segments), n, index, c.splitDim, c.splitSegments);
  case CollectiveKind::Permute:
    return *group[(index + n - 1) % n];
  case CollectiveKind::Send:
    break;
  }
  ADD_FAILURE() << "a send is not simulated";
  return mine;
}

/// Returns the ranks that differ from `rank` only along `axes`, by group index. Example: with dp=2,
/// tp=2 and axes {dp}, the group of rank 1 is 1, 3.
static std::vector<int64_t> groupOf(const Mesh &mesh, const std::vector<AxisRef> &axes,
                                    int64_t rank) {
  std::vector<int64_t> mine = mesh.coordinates(rank), members(groupSize(axes), -1);
  auto outside = [&](std::vector<int64_t> c) {
    for (const AxisRef &axis : axes) { // take the digit out
      int64_t rest = mesh.axes[axis.axis].size / (axis.pre * axis.size);
      c[axis.axis] -= c[axis.axis] / rest % axis.size * rest;
    }
    return c;
  };
  for (int64_t other = 0; other < mesh.numRanks(); ++other)
    if (outside(mesh.coordinates(other)) == outside(mine))
      members[groupIndex(mesh, axes, mesh.coordinates(other))] = other;
  return members;
}

void execute(const Mesh &mesh, const Collective &collective, const std::vector<int64_t> &shapeAfter,
             std::vector<LocalTensor> &ranks) {
  std::vector<LocalTensor> before = ranks;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    Group group;
    for (int64_t member : groupOf(mesh, collective.axes, rank))
      group.push_back(&before[member]);
    int64_t index = groupIndex(mesh, collective.axes, mesh.coordinates(rank));
    ranks[rank] = resultOn(collective, group, index, shapeAfter);
  }
}

std::string difference(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding,
                       const std::vector<LocalTensor> &ranks, const Values &values,
                       int64_t modulus) {
  std::vector<AxisRef> partial = partialAxes(sharding);
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    std::string who = "rank " + std::to_string(rank) + ": ";
    Group group;
    for (int64_t member : groupOf(mesh, partial, rank))
      group.push_back(const_cast<LocalTensor *>(&ranks[member]));
    if (ranks[rank].shape != localShape(layout, sharding))
      return who + "wrong shape";
    LocalTensor total = sum(group, isMax(sharding) ? ReduceKind::Max : ReduceKind::Sum);
    std::vector<int64_t> held = heldIndices(mesh, layout, sharding, mesh.coordinates(rank));
    for (size_t i = 0; i < held.size(); ++i) {
      if (held[i] < 0)
        continue;
      int64_t difference = total.data[i] - values(held[i]);
      if (modulus == 0 ? difference != 0 : difference % modulus != 0)
        return who + "element " + std::to_string(i) + " is not global element " +
               std::to_string(held[i]);
    }
  }
  return "";
}

} // namespace tbc::reshard::test

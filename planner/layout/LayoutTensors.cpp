//===- LayoutTensors.cpp - Tensors of a derived step in plan.json's terms -===//

#include "planner/layout/LayoutTensors.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

static AxisNames namesOf(const Mesh &mesh, const std::vector<AxisRef> &axes) {
  AxisNames names;
  for (const AxisRef &axis : axes)
    names.push_back(toString(mesh, {axis}));
  return names;
}

/// Returns the factors of one segment with their axes; unsplit neighbours are one factor.
static std::vector<SplitFactor> factorsOf(const Mesh &mesh, const Segment &segment,
                                          const Sharding &sharding, int dim) {
  std::vector<SplitFactor> factors;
  for (const Factor &factor : segment.factors) {
    const FactorSharding *split = find(sharding, dim, factor.id);
    AxisNames axes = split ? namesOf(mesh, split->axes) : AxisNames();
    if (axes.empty() && !factors.empty() && factors.back().axes.empty())
      factors.back().size *= factor.size;
    else
      factors.push_back({factor.size, std::move(axes)});
  }
  return factors;
}

static DimSplit splitOf(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding,
                        int dim) {
  DimSplit split;
  const bool isSplit = std::any_of(sharding.factors.begin(), sharding.factors.end(),
                                   [&](const FactorSharding &f) { return f.dim == dim; });
  if (!isSplit)
    return split;
  for (const Segment &segment : layout.dims[size_t(dim)].segments)
    split.segments.push_back(factorsOf(mesh, segment, sharding, dim));
  const std::vector<SplitFactor> &first = split.segments.front();
  const bool isContiguous =
      split.segments.size() == 1 && !first.front().axes.empty() &&
      std::all_of(first.begin() + 1, first.end(),
                  [](const SplitFactor &factor) { return factor.axes.empty(); });
  if (isContiguous)
    return {first.front().axes, {}};
  return split;
}

TensorPlacement placementOf(const Mesh &mesh, const TensorLayout &layout,
                            const Sharding &sharding) {
  TensorPlacement placement;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim)
    placement.dims.push_back(splitOf(mesh, layout, sharding, int(dim)));
  for (const Partial &partial : sharding.partial) {
    placement.partial.push_back(toString(mesh, {partial.axis}));
    placement.isMaximum = partial.kind == ReduceKind::Max;
  }
  placement.flat = namesOf(mesh, sharding.flat);
  if (!sharding.flat.empty()) {
    Sharding whole = sharding;
    whole.flat.clear();
    int64_t elements = 1;
    for (int64_t size : localShape(layout, whole))
      elements *= size;
    placement.padding = localShape(layout, sharding).front() * groupSize(sharding.flat) - elements;
  }
  return placement;
}

LayoutTensor tensorOf(const Mesh &mesh, const GraphValue &value, const Sharding &sharding) {
  return {value.layout.shape(), std::string(name(value.dtype)),
          placementOf(mesh, value.layout, sharding)};
}

} // namespace tbc::planner

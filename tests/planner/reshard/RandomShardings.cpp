//===- RandomShardings.cpp - Random meshes, layouts and shardings ----------===//

#include "tests/planner/reshard/RandomShardings.h"

#include <algorithm>

namespace tbc::reshard::test {

Mesh RandomShardings::mesh(int maxAxes) {
  const int64_t sizes[] = {1, 2, 2, 3, 4, 4, 6, 8};
  Mesh mesh;
  for (int i = 0; i < maxAxes; ++i) {
    int64_t size = sizes[below(8)];
    if (mesh.numRanks() * size <= 24)
      mesh.axes.push_back({"m" + std::to_string(i), size});
  }
  return mesh;
}

TensorLayout RandomShardings::layout(int maxDims, bool segmented) {
  const int64_t sizes[] = {1, 2, 3, 4, 4, 6, 8, 8, 12, 5};
  std::vector<Factor> factors;
  for (FactorId id = 0; id < 5; ++id)
    factors.push_back({id, sizes[below(10)]});
  TensorLayout layout;
  layout.elementBytes = below(2) ? 4 : 2;
  int64_t numDims = 1 + below(maxDims);
  while (static_cast<int64_t>(layout.dims.size()) < std::max<int64_t>(numDims, 1)) {
    std::shuffle(factors.begin(), factors.end(), engine);
    DimLayout dim;
    for (int64_t s = 0, n = segmented ? 1 + below(2) : 1; s < n; ++s) {
      // Segments share the first factor, differ in the others.
      Segment segment{{factors[0]}};
      for (int64_t f = 0, count = below(3); f < count; ++f)
        segment.factors.push_back(factors[1 + s * 2 + f]);
      std::shuffle(segment.factors.begin(), segment.factors.end(), engine);
      dim.segments.push_back(segment);
    }
    layout.dims.push_back(dim);
    if (layout.numElements() > 4000) {
      layout.dims.pop_back();
      --numDims;
    }
  }
  return layout;
}

std::vector<AxisRef> RandomShardings::parts(const Mesh &mesh, bool split) {
  std::vector<AxisRef> result;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    AxisRef whole = wholeAxis(mesh, static_cast<int>(i));
    int64_t pre = below(2) ? 2 : 3;
    if (split && below(2) && whole.size > pre && whole.size % pre == 0) {
      result.push_back({whole.axis, 1, pre});
      result.push_back({whole.axis, pre, whole.size / pre});
    } else {
      result.push_back(whole);
    }
  }
  std::shuffle(result.begin(), result.end(), engine);
  return result;
}

/// Puts `axis` on a random factor, or flat, or nowhere.
void RandomShardings::place(const Mesh &mesh, const TensorLayout &layout, const AxisRef &axis,
                            bool flat, Sharding &sharding) {
  int64_t choice = below(8);
  if (choice == 0)
    return;
  if (choice == 1 && flat) {
    sharding.flat.push_back(axis);
    return;
  }
  for (int attempt = 0; attempt < 4; ++attempt) {
    int dim = static_cast<int>(below(static_cast<int64_t>(layout.dims.size())));
    const auto &factors = layout.dims[dim].segments[0].factors;
    FactorId factor = factors[below(static_cast<int64_t>(factors.size()))].id;
    Sharding with = sharding;
    auto entry = std::find_if(with.factors.begin(), with.factors.end(),
                              [&](const auto &f) { return f.dim == dim && f.factor == factor; });
    if (entry == with.factors.end())
      entry = with.factors.insert(entry, {dim, factor, {}});
    entry->axes.push_back(axis);
    if (whyInvalid(mesh, layout, with).empty()) {
      sharding = with;
      return;
    }
  }
}

Sharding RandomShardings::sharding(const Mesh &mesh, const TensorLayout &layout, bool split,
                                   bool flat) {
  Sharding result;
  ReduceKind kind = below(5) ? ReduceKind::Sum : ReduceKind::Max;
  for (const AxisRef &axis : parts(mesh, split)) {
    if (below(3) == 0)
      result.partial.push_back({axis, kind});
    else
      place(mesh, layout, axis, flat, result);
  }
  normalize(result);
  return result;
}

Sharding RandomShardings::target(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
                                 bool split, bool flat) {
  Sharding result;
  for (const Partial &p : from.partial)
    if (below(4) == 0)
      result.partial.push_back(p);
  for (const AxisRef &axis : parts(mesh, split))
    if (!overlap(usedAxes(result), axis))
      place(mesh, layout, axis, flat, result);
  normalize(result);
  return result;
}

} // namespace tbc::reshard::test

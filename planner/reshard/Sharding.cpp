//===- Sharding.cpp - Local shapes, validity, printing --------------------===//

#include "planner/reshard/Sharding.h"

#include <algorithm>
#include <cassert>

namespace tbc::reshard {

//===----------------------------------------------------------------------===//
// Mesh and axes
//===----------------------------------------------------------------------===//

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

int64_t Segment::numElements() const {
  int64_t product = 1;
  for (const Factor &factor : factors)
    product *= factor.size;
  return product;
}

int64_t DimLayout::numElements() const {
  int64_t sum = 0;
  for (const Segment &segment : segments)
    sum += segment.numElements();
  return sum;
}

std::vector<int64_t> TensorLayout::shape() const {
  std::vector<int64_t> result;
  for (const DimLayout &dim : dims)
    result.push_back(dim.numElements());
  return result;
}

int64_t TensorLayout::numElements() const {
  int64_t product = 1;
  for (const DimLayout &dim : dims)
    product *= dim.numElements();
  return product;
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

static void dropTrivial(std::vector<AxisRef> &axes) {
  axes.erase(std::remove_if(axes.begin(), axes.end(), [](const AxisRef &a) { return a.size == 1; }),
             axes.end());
}

void normalize(Sharding &sharding) {
  for (FactorSharding &f : sharding.factors)
    dropTrivial(f.axes);
  auto &factors = sharding.factors;
  factors.erase(std::remove_if(factors.begin(), factors.end(),
                               [](const FactorSharding &f) { return f.axes.empty(); }),
                factors.end());
  std::sort(factors.begin(), factors.end());
  auto &partial = sharding.partial;
  partial.erase(std::remove_if(partial.begin(), partial.end(),
                               [](const Partial &p) { return p.axis.size == 1; }),
                partial.end());
  std::sort(partial.begin(), partial.end());
  partial.erase(std::unique(partial.begin(), partial.end()), partial.end());
  dropTrivial(sharding.flat);
}

std::vector<AxisRef> usedAxes(const Sharding &sharding) {
  std::vector<AxisRef> axes;
  for (const FactorSharding &f : sharding.factors)
    axes.insert(axes.end(), f.axes.begin(), f.axes.end());
  for (const Partial &p : sharding.partial)
    axes.push_back(p.axis);
  axes.insert(axes.end(), sharding.flat.begin(), sharding.flat.end());
  return axes;
}

const FactorSharding *find(const Sharding &sharding, int dim, FactorId factor) {
  for (const FactorSharding &f : sharding.factors)
    if (f.dim == dim && f.factor == factor)
      return &f;
  return nullptr;
}

/// Returns why the axes of a sharding are invalid for any tensor, or "".
static std::string whyInvalidAxes(const Mesh &mesh, const Sharding &sharding) {
  std::vector<AxisRef> axes = usedAxes(sharding);
  for (size_t i = 0; i < axes.size(); ++i) {
    const AxisRef &a = axes[i];
    if (a.axis < 0 || a.axis >= static_cast<int>(mesh.axes.size()))
      return "the mesh has no axis number " + std::to_string(a.axis);
    if (a.size < 1 || a.pre < 1 || mesh.axes[a.axis].size % (a.pre * a.size) != 0)
      return "'" + toString(mesh, a) + "' is no part of an axis of size " +
             std::to_string(mesh.axes[a.axis].size);
    for (size_t j = 0; j < i; ++j)
      if (a.size > 1 && axes[j].size > 1 && overlap(axes[j], a))
        return "mesh axis '" + mesh.axes[a.axis].name + "' is used twice";
  }
  for (const Partial &p : sharding.partial)
    if (p.kind != sharding.partial.front().kind)
      return "partial over a sum and a maximum at once";
  return "";
}

static std::string whyInvalidFactor(const TensorLayout &layout, const FactorSharding &f) {
  if (f.dim < 0 || f.dim >= static_cast<int>(layout.dims.size()))
    return "there is no dim " + std::to_string(f.dim);
  std::string what = "factor " + std::to_string(f.factor) + " of dim " + std::to_string(f.dim);
  for (const Segment &segment : layout.dims[f.dim].segments) {
    int64_t found = 0;
    for (const Factor &factor : segment.factors) {
      if (factor.id != f.factor)
        continue;
      ++found;
      if (factor.size % groupSize(f.axes) != 0)
        return what + " has size " + std::to_string(factor.size) + ", which " +
               std::to_string(groupSize(f.axes)) + " does not divide";
    }
    if (found == 0)
      return what + " is not in every segment of the dim";
    if (found > 1)
      return what + " occurs twice in one segment";
  }
  return layout.dims[f.dim].segments.empty() ? what + " does not exist" : "";
}

std::string whyInvalid(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding) {
  std::string why = whyInvalidAxes(mesh, sharding);
  for (size_t i = 0; why.empty() && i < sharding.factors.size(); ++i) {
    const FactorSharding &f = sharding.factors[i];
    why = whyInvalidFactor(layout, f);
    for (size_t j = 0; why.empty() && j < i; ++j)
      if (sharding.factors[j].dim == f.dim && sharding.factors[j].factor == f.factor)
        why = "factor " + std::to_string(f.factor) + " of dim " + std::to_string(f.dim) +
              " is listed twice";
  }
  return why;
}

TensorLayout localLayout(const TensorLayout &layout, const Sharding &sharding) {
  TensorLayout local = layout;
  for (const FactorSharding &f : sharding.factors)
    for (Segment &segment : local.dims[f.dim].segments)
      for (Factor &factor : segment.factors)
        if (factor.id == f.factor)
          factor.size /= groupSize(f.axes);
  return local;
}

std::vector<int64_t> localShape(const TensorLayout &layout, const Sharding &sharding) {
  TensorLayout local = localLayout(layout, sharding);
  if (sharding.flat.empty())
    return local.shape();
  int64_t n = groupSize(sharding.flat);
  return {(local.numElements() + n - 1) / n};
}

/// Returns the local length of dim `d` under `sharding`.
static int64_t localLength(const DimLayout &dim, int d, const Sharding &sharding) {
  int64_t sum = 0;
  for (const Segment &segment : dim.segments) {
    int64_t product = 1;
    for (const Factor &factor : segment.factors) {
      const FactorSharding *split = find(sharding, d, factor.id);
      product *= split ? factor.size / groupSize(split->axes) : factor.size;
    }
    sum += product;
  }
  return sum;
}

int64_t localBytes(const TensorLayout &layout, const Sharding &sharding) {
  int64_t elements = 1;
  for (size_t d = 0; d < layout.dims.size(); ++d)
    elements *= localLength(layout.dims[d], static_cast<int>(d), sharding);
  int64_t n = groupSize(sharding.flat);
  return layout.elementBytes * ((elements + n - 1) / n);
}

std::string toString(const Mesh &mesh, const Sharding &sharding) {
  std::string text = "[";
  for (const FactorSharding &f : sharding.factors) {
    text += text.size() > 1 ? ", " : "";
    text +=
        "d" + std::to_string(f.dim) + "." + std::to_string(f.factor) + "@" + toString(mesh, f.axes);
  }
  text += "]";
  if (!sharding.partial.empty()) {
    std::vector<AxisRef> axes;
    for (const Partial &p : sharding.partial)
      axes.push_back(p.axis);
    bool isMax = sharding.partial.front().kind == ReduceKind::Max;
    text += std::string(isMax ? " partial max{" : " partial{") + toString(mesh, axes) + "}";
  }
  if (!sharding.flat.empty())
    text += " flat{" + toString(mesh, sharding.flat) + "}";
  return text;
}

} // namespace tbc::reshard

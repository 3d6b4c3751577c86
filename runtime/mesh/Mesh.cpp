//===- Mesh.cpp - The grid of ranks ----------------------------------------===//

#include "runtime/mesh/Mesh.h"

#include <algorithm>

namespace tbc::mesh {

int64_t Mesh::numRanks() const {
  int64_t ranks = 1;
  for (const MeshAxis &axis : axes)
    ranks *= axis.size;
  return ranks;
}

int Mesh::axisIndex(const std::string &name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name)
      return static_cast<int>(i);
  }
  return -1;
}

std::vector<int64_t> Mesh::coordinates(int64_t rank) const {
  std::vector<int64_t> result(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    result[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return result;
}

int64_t Mesh::rankOf(const std::vector<int64_t> &coordinates) const {
  int64_t rank = 0;
  for (size_t i = 0; i < axes.size(); ++i)
    rank = rank * axes[i].size + coordinates[i];
  return rank;
}

AxisRef wholeAxis(const Mesh &mesh, int axis) { return {axis, 1, mesh.axes[axis].size}; }

bool overlap(const AxisRef &a, const AxisRef &b) {
  if (a.axis != b.axis)
    return false;
  // Digits of a mixed-radix number: disjoint only if one starts at or after the other's end.
  return b.pre % (a.pre * a.size) != 0 && a.pre % (b.pre * b.size) != 0;
}

bool overlap(const std::vector<AxisRef> &axes, const AxisRef &axis) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const AxisRef &other) { return overlap(other, axis); });
}

std::string toString(const Mesh &mesh, const AxisRef &axis) {
  if (axis.axis < 0 || axis.axis >= static_cast<int>(mesh.axes.size()))
    return "axis#" + std::to_string(axis.axis);
  const MeshAxis &whole = mesh.axes[axis.axis];
  if (axis.pre == 1 && axis.size == whole.size)
    return whole.name;
  return whole.name + ":(" + std::to_string(axis.pre) + ")" + std::to_string(axis.size);
}

std::string toString(const Mesh &mesh, const std::vector<AxisRef> &axes) {
  std::string text;
  for (const AxisRef &axis : axes)
    text += (text.empty() ? "" : "+") + toString(mesh, axis);
  return text;
}

int64_t groupSize(const std::vector<AxisRef> &axes) {
  int64_t size = 1;
  for (const AxisRef &axis : axes)
    size *= axis.size;
  return size;
}

/// The product of the parts of the axis that come after `axis`.
static int64_t restOf(const Mesh &mesh, const AxisRef &axis) {
  return mesh.axes[axis.axis].size / (axis.pre * axis.size);
}

int64_t groupIndex(const Mesh &mesh, const std::vector<AxisRef> &axes,
                   const std::vector<int64_t> &coordinates) {
  int64_t index = 0;
  for (const AxisRef &axis : axes)
    index = index * axis.size + coordinates[axis.axis] / restOf(mesh, axis) % axis.size;
  return index;
}

std::vector<int64_t> groupRanks(const Mesh &mesh, const std::vector<AxisRef> &axes,
                                const std::vector<int64_t> &coordinates) {
  int64_t size = groupSize(axes);
  std::vector<int64_t> ranks;
  ranks.reserve(size);
  for (int64_t index = 0; index < size; ++index) {
    std::vector<int64_t> member = coordinates;
    int64_t left = index;
    for (size_t i = axes.size(); i-- > 0;) {
      int64_t rest = restOf(mesh, axes[i]);
      int64_t old = member[axes[i].axis] / rest % axes[i].size;
      member[axes[i].axis] += (left % axes[i].size - old) * rest;
      left /= axes[i].size;
    }
    ranks.push_back(mesh.rankOf(member));
  }
  return ranks;
}

std::string whyInvalid(const Mesh &mesh, const std::vector<AxisRef> &axes) {
  std::vector<AxisRef> sorted;
  for (const AxisRef &ref : axes) {
    if (ref.axis < 0 || ref.axis >= static_cast<int>(mesh.axes.size()))
      return "the mesh has no axis number " + std::to_string(ref.axis);
    const MeshAxis &axis = mesh.axes[ref.axis];
    if (ref.pre < 1 || ref.size < 1 || ref.pre > axis.size || ref.size > axis.size ||
        axis.size % (ref.pre * ref.size) != 0)
      return "the part (" + std::to_string(ref.pre) + ")" + std::to_string(ref.size) +
             " does not divide mesh axis \"" + axis.name + "\" of size " +
             std::to_string(axis.size);
    sorted.push_back(ref);
  }
  std::sort(sorted.begin(), sorted.end(), [](const AxisRef &a, const AxisRef &b) {
    return a.axis != b.axis ? a.axis < b.axis : a.pre < b.pre;
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const AxisRef &before = sorted[i - 1], &ref = sorted[i];
    if (ref.axis == before.axis && (ref.pre < before.pre * before.size || ref.pre == before.pre ||
                                    ref.pre % (before.pre * before.size) != 0))
      return "mesh axis \"" + mesh.axes[ref.axis].name + "\" is used twice";
  }
  return "";
}

} // namespace tbc::mesh

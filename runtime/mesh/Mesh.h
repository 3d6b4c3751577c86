//===- Mesh.h - The grid of ranks ------------------------------------------===//
//
// Part of tbc. Plain C++. The planner, the IR and Programs share these definitions.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MESH_MESH_H
#define TBC_RUNTIME_MESH_MESH_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::mesh {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis &o) const { return name == o.name && size == o.size; }
};

/// A device mesh. Ranks are numbered in row-major order, the first axis slowest. Example: dp=2,
/// tp=4: rank 5 has coordinates (1, 1).
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t numRanks() const;
  /// Returns the index of the axis `name`, or -1.
  int axisIndex(const std::string &name) const;
  /// Returns the coordinate of `rank` along every axis.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rankOf(const std::vector<int64_t> &coordinates) const;
  bool operator==(const Mesh &o) const { return axes == o.axes; }
};

/// A mesh axis or a part of it. The axis is read as pre x size x rest, and this is the middle part.
/// The whole axis has pre = 1 and its own size. Example: an axis of 8 as 2 x 4 x 1; its part {pre
/// 2, size 4} is "dp:(2)4".
struct AxisRef {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 1;

  bool operator==(const AxisRef &o) const {
    return axis == o.axis && pre == o.pre && size == o.size;
  }
  bool operator<(const AxisRef &o) const {
    if (axis != o.axis)
      return axis < o.axis;
    return pre != o.pre ? pre < o.pre : size < o.size;
  }
};

/// Returns the whole axis number `axis` of `mesh`.
AxisRef wholeAxis(const Mesh &mesh, int axis);
/// Whether two references name overlapping parts of one axis (conservative for parts that do not
/// nest, e.g. 2 x 3 and 3 x 2 of an axis of size 6).
bool overlap(const AxisRef &a, const AxisRef &b);
bool overlap(const std::vector<AxisRef> &axes, const AxisRef &axis);

/// Returns "dp" for a whole axis, "dp:(2)4" for the part with pre 2 and size 4, "axis#3" for an
/// axis that the mesh does not have.
std::string toString(const Mesh &mesh, const AxisRef &axis);
/// The same, joined by "+"; "" for an empty list.
std::string toString(const Mesh &mesh, const std::vector<AxisRef> &axes);

/// Returns the number of ranks spanned by `axes`.
int64_t groupSize(const std::vector<AxisRef> &axes);
/// Returns the index of a rank within its group along `axes`, the first axis slowest.
int64_t groupIndex(const Mesh &mesh, const std::vector<AxisRef> &axes,
                   const std::vector<int64_t> &coordinates);
/// Returns the ranks that differ from `coordinates` along `axes` only, in the order of their group
/// index.
std::vector<int64_t> groupRanks(const Mesh &mesh, const std::vector<AxisRef> &axes,
                                const std::vector<int64_t> &coordinates);
/// Returns why `axes` cannot name a group of `mesh`, or "". Reasons: an axis out of range, a part
/// that does not divide its axis, overlapping parts.
std::string whyInvalid(const Mesh &mesh, const std::vector<AxisRef> &axes);

/// How ranks combine partial results.
enum class ReduceKind { Sum, Max };

/// One segment of a dim in a collective: the full dim has outer x (n*k) x inner elements, the local
/// one outer x k x inner (n = group size). Group index g holds k-indices g*k .. g*k+k-1. "Full" and
/// "local" refer to the collective's own axes; other axes may shard the same dim. Example: n = 4, k
/// = 2: the full dim has 8 k-indices, and group index 1 holds 2 and 3.
struct SegmentShape {
  int64_t outer = 1;
  int64_t k = 1;
  int64_t inner = 1;
  bool operator==(const SegmentShape &o) const {
    return outer == o.outer && k == o.k && inner == o.inner;
  }
};

} // namespace tbc::mesh

#endif // TBC_RUNTIME_MESH_MESH_H

//===- Sharding.h - The distribution of a tensor over a mesh --------------===//
//
// Plain C++. A tensor's dims are ordered sums of segments, each an ordered product of factors
// (docs/design.md, section 2). A sharding assigns mesh axes to the factors of dims.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_SHARDING_H
#define TBC_PLANNER_RESHARD_SHARDING_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::reshard {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
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
};

/// A whole mesh axis, or the middle part of an axis read as pre x size x rest. Example: on an axis
/// of size 8, pre = 2 and size = 2 stand for the middle bit.
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
/// Returns the number of ranks spanned by `axes`.
int64_t groupSize(const std::vector<AxisRef> &axes);
/// Returns the index of a rank within its group along `axes`, the first axis slowest.
int64_t groupIndex(const Mesh &mesh, const std::vector<AxisRef> &axes,
                   const std::vector<int64_t> &coordinates);

using FactorId = int64_t;

struct Factor {
  FactorId id = 0;
  int64_t size = 1;
  bool operator==(const Factor &o) const { return id == o.id && size == o.size; }
};

/// An ordered product of factors; empty means size 1.
struct Segment {
  std::vector<Factor> factors;
  int64_t numElements() const;
  bool operator==(const Segment &o) const { return factors == o.factors; }
};

/// An ordered sum of segments: a dim that is the concatenation of its segments.
struct DimLayout {
  std::vector<Segment> segments;
  int64_t numElements() const;
  bool operator==(const DimLayout &o) const { return segments == o.segments; }
};

struct TensorLayout {
  std::vector<DimLayout> dims;
  int64_t elementBytes = 4;
  std::vector<int64_t> shape() const;
  int64_t numElements() const;
};

/// `axes` (the first is the slowest) split factor `factor` of dim `dim`. Every segment of the dim
/// must hold the factor exactly once. A segment without it would be replicated within a sharded
/// tensor, and a sum over the dim would count it once per rank.
struct FactorSharding {
  int dim = 0;
  FactorId factor = 0;
  std::vector<AxisRef> axes;

  bool operator==(const FactorSharding &o) const {
    return dim == o.dim && factor == o.factor && axes == o.axes;
  }
  bool operator<(const FactorSharding &o) const {
    if (dim != o.dim)
      return dim < o.dim;
    return factor != o.factor ? factor < o.factor : axes < o.axes;
  }
};

enum class ReduceKind { Sum, Max };

/// The tensor is a partial result along `axis`, completed by a reduction of kind `kind`.
struct Pending {
  AxisRef axis;
  ReduceKind kind = ReduceKind::Sum;
  bool operator==(const Pending &o) const { return axis == o.axis && kind == o.kind; }
  bool operator<(const Pending &o) const {
    return !(axis == o.axis) ? axis < o.axis : kind < o.kind;
  }
};

/// The distribution of a tensor over the mesh. Unnamed axes hold replicas. Kept sorted (see
/// normalize), so equal shardings compare equal.
///
/// `flat`: the local tensor after `factors` is flattened, padded at its end to a multiple of
/// groupSize(flat), and cut into equal chunks, chunk i on group index i. ZeRO and FSDP store
/// parameters, gradients and optimizer state in this form, for any shape. Example: 10 elements over
/// 4 ranks are chunks of 3 with 2 elements of padding.
/// store parameters, gradients and optimizer state, for any shape.
struct Sharding {
  std::vector<FactorSharding> factors;
  std::vector<Pending> pending;
  std::vector<AxisRef> flat;

  bool operator==(const Sharding &o) const {
    return factors == o.factors && pending == o.pending && flat == o.flat;
  }
  bool operator!=(const Sharding &o) const { return !(*this == o); }
  bool operator<(const Sharding &o) const {
    if (factors != o.factors)
      return factors < o.factors;
    return pending != o.pending ? pending < o.pending : flat < o.flat;
  }
};

/// Sorts `factors` and `pending` and drops axes of size 1 and empty entries.
void normalize(Sharding &sharding);

/// Returns every axis named by a sharding: on factors, partial, flat.
std::vector<AxisRef> usedAxes(const Sharding &sharding);
/// Returns the entry for one factor of one dim, or nullptr.
const FactorSharding *find(const Sharding &sharding, int dim, FactorId factor);

/// Returns why `sharding` is impossible for a tensor with layout `layout`, or "":
/// - an axis used twice (on factors, partial or flat);
/// - a factor missing from a segment of the dim;
/// - a factor size not divisible by its axes;
/// - partial sums and maxima at once.
std::string whyInvalid(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding);

/// Returns the shape on every rank: for a flat sharding the one-dimensional chunk, padding
/// included.
std::vector<int64_t> localShape(const TensorLayout &layout, const Sharding &sharding);
int64_t localBytes(const TensorLayout &layout, const Sharding &sharding);

/// Returns the layout on a rank after `factors` (flat and pending ignored): same structure, local
/// sizes.
TensorLayout localLayout(const TensorLayout &layout, const Sharding &sharding);

/// Returns the global indices along dim `dim` on the rank with these coordinates, in local order.
/// Ignores `flat`.
std::vector<int64_t> localIndices(const Mesh &mesh, const TensorLayout &layout,
                                  const Sharding &sharding, int dim,
                                  const std::vector<int64_t> &coordinates);

/// Format for messages and tests: dim, factor id, axes. Example: "[d0.3@dp, d1.7@tp] pending{tp}
/// flat{fsdp}".
std::string toString(const Mesh &mesh, const Sharding &sharding);
/// Axis names joined by "+". Example: "dp+tp"; the part pre x size of an axis is written "tp:(1)2".
std::string toString(const Mesh &mesh, const std::vector<AxisRef> &axes);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SHARDING_H

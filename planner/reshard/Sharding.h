//===- Sharding.h - How a tensor is spread over a mesh ---------------------===//
//
// Plain C++. A tensor's dims are ordered sums of segments, each an ordered product of factors
// (docs/design.md, section 2); a sharding says which mesh axes lie on which factor of which dim.
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

/// A device mesh. Ranks are numbered in row-major order, the first axis slowest.
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t numRanks() const;
  /// The index of the axis called `name`, or -1.
  int axisIndex(const std::string &name) const;
  /// The coordinate of `rank` along every axis.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rankOf(const std::vector<int64_t> &coordinates) const;
};

/// A whole mesh axis, or the part of it that is left when the axis is read as pre x size x rest.
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

/// The whole axis number `axis` of `mesh`.
AxisRef wholeAxis(const Mesh &mesh, int axis);
/// Whether two references name parts of one axis that are not apart (conservative for parts that do
/// not nest, e.g. 2 x 3 and 3 x 2 of an axis of size 6).
bool overlap(const AxisRef &a, const AxisRef &b);
bool overlap(const std::vector<AxisRef> &axes, const AxisRef &axis);
/// The number of ranks that `axes` span.
int64_t groupSize(const std::vector<AxisRef> &axes);
/// The index of a rank within its group along `axes`, the first axis slowest.
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
/// must hold the factor, and hold it once: a segment without it would be a replica within a sharded
/// tensor, which a sum over the dim would count once per rank.
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

/// The tensor is, along `axis`, a partial result that a reduction of kind `kind` completes.
struct Pending {
  AxisRef axis;
  ReduceKind kind = ReduceKind::Sum;
  bool operator==(const Pending &o) const { return axis == o.axis && kind == o.kind; }
  bool operator<(const Pending &o) const {
    return !(axis == o.axis) ? axis < o.axis : kind < o.kind;
  }
};

/// A tensor's place on the mesh. Axes named nowhere hold replicas. Kept sorted (see normalize) so
/// that equal shardings compare equal.
///
/// `flat`: the local tensor that `factors` leave is flattened, padded at its end to a multiple of
/// groupSize(flat) and cut into that many equal chunks, chunk i on group index i: how ZeRO and FSDP
/// store parameters, gradients and optimizer state, whatever their shape.
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

/// Every axis that a sharding names: on factors, pending, flat.
std::vector<AxisRef> usedAxes(const Sharding &sharding);
/// The entry for one factor of one dim, or nullptr.
const FactorSharding *find(const Sharding &sharding, int dim, FactorId factor);

/// Why `sharding` is impossible for a tensor laid out as `layout`, or "" if it is possible: an axis
/// used twice (on factors, pending or flat), a factor that is not in every segment of the dim, a
/// factor size that the axes do not divide, sums and maxima pending at once.
std::string whyInvalid(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding);

/// The shape every rank holds: for a flat sharding the one-dimensional chunk, padding included.
std::vector<int64_t> localShape(const TensorLayout &layout, const Sharding &sharding);
int64_t localBytes(const TensorLayout &layout, const Sharding &sharding);

/// The layout of what `factors` leave on a rank (flat and pending ignored): same structure, local
/// sizes.
TensorLayout localLayout(const TensorLayout &layout, const Sharding &sharding);

/// The global indices along dim `dim` that the rank with these coordinates holds, in local order.
/// `flat` is not looked at.
std::vector<int64_t> localIndices(const Mesh &mesh, const TensorLayout &layout,
                                  const Sharding &sharding, int dim,
                                  const std::vector<int64_t> &coordinates);

/// e.g. "[d0.3@dp, d1.7@tp] pending{tp} flat{fsdp}": dim, factor id, axes; for messages and tests.
std::string toString(const Mesh &mesh, const Sharding &sharding);
/// Axis names joined by "+"; the part pre x size of an axis is written "tp:(1)2".
std::string toString(const Mesh &mesh, const std::vector<AxisRef> &axes);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SHARDING_H

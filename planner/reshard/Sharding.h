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

/// `axes` (the first is the slowest) split factor `factor` of dim `dim`, in every segment that has it.
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

/// A tensor's place on the mesh. Axes named nowhere hold replicas. Kept sorted (see normalize) so that
/// equal shardings compare equal.
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

/// Sorts `factors` and `pending` and drops empty entries.
void normalize(Sharding &sharding);

/// Why `sharding` is impossible for a tensor laid out as `layout`, or "" if it is possible: an axis
/// used twice, a factor that the dim does not have, a factor size that the axes do not divide, a flat
/// sharding that is also pending over the same axis.
std::string whyInvalid(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding);

/// The shape every rank holds: for a flat sharding the one-dimensional chunk, padding included.
std::vector<int64_t> localShape(const TensorLayout &layout, const Sharding &sharding);
int64_t localBytes(const TensorLayout &layout, const Sharding &sharding);

/// The layout of what `factors` leave on a rank (flat and pending ignored): same structure, local sizes.
TensorLayout localLayout(const TensorLayout &layout, const Sharding &sharding);

/// The global indices along dim `dim` that the rank with these coordinates holds, in local order.
/// `flat` is not looked at.
std::vector<int64_t> localIndices(const Mesh &mesh, const TensorLayout &layout,
                                  const Sharding &sharding, int dim,
                                  const std::vector<int64_t> &coordinates);

/// e.g. "[b@dp, h@tp] pending{tp} flat{fsdp}" with factor ids as numbers; for messages and tests.
std::string toString(const Mesh &mesh, const Sharding &sharding);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SHARDING_H

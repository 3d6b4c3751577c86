//===- Sharding.h - The distribution of a tensor over a mesh --------------===//
//
// Plain C++. A tensor's dims are ordered sums of segments, each an ordered product of factors
// (docs/design.md, section 2). A sharding assigns mesh axes to the factors of dims.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_SHARDING_H
#define TBC_PLANNER_RESHARD_SHARDING_H

#include "runtime/mesh/Mesh.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::reshard {

using mesh::AxisRef;
using mesh::groupIndex;
using mesh::groupSize;
using mesh::Mesh;
using mesh::MeshAxis;
using mesh::overlap;
using mesh::ReduceKind;
using mesh::toString;
using mesh::wholeAxis;

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

/// The tensor is a partial result along `axis`, completed by a reduction of kind `kind`.
struct Partial {
  AxisRef axis;
  ReduceKind kind = ReduceKind::Sum;
  bool operator==(const Partial &o) const { return axis == o.axis && kind == o.kind; }
  bool operator<(const Partial &o) const {
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
struct Sharding {
  std::vector<FactorSharding> factors;
  std::vector<Partial> partial;
  std::vector<AxisRef> flat;

  bool operator==(const Sharding &o) const {
    return factors == o.factors && partial == o.partial && flat == o.flat;
  }
  bool operator!=(const Sharding &o) const { return !(*this == o); }
  bool operator<(const Sharding &o) const {
    if (factors != o.factors)
      return factors < o.factors;
    return partial != o.partial ? partial < o.partial : flat < o.flat;
  }
};

/// Sorts `factors` and `partial` and drops axes of size 1 and empty entries.
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

/// Returns the layout on a rank after `factors` (flat and partial ignored): same structure, local
/// sizes.
TensorLayout localLayout(const TensorLayout &layout, const Sharding &sharding);

/// Format for messages and tests: dim, factor id, axes. Example: "[d0.3@dp, d1.7@tp] partial{tp}
/// flat{fsdp}".
std::string toString(const Mesh &mesh, const Sharding &sharding);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SHARDING_H

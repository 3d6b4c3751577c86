//===- Move.cpp - One step between two shardings ---------------------------===//

#include "planner/reshard/Move.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace tbc::reshard {

void brokenContract(const std::string &message) {
  std::fprintf(stderr, "tbc-reshard: %s\n", message.c_str());
  std::abort();
}

const std::vector<AxisRef> &axesAt(const Sharding &sharding, const Place &place) {
  static const std::vector<AxisRef> none;
  if (place.dim < 0)
    return sharding.flat;
  const FactorSharding *entry = find(sharding, place.dim, place.factor);
  return entry ? entry->axes : none;
}

static void append(Sharding &sharding, const Place &place, const std::vector<AxisRef> &axes) {
  if (place.dim < 0) {
    sharding.flat.insert(sharding.flat.end(), axes.begin(), axes.end());
    return;
  }
  for (FactorSharding &f : sharding.factors) {
    if (f.dim != place.dim || f.factor != place.factor)
      continue;
    f.axes.insert(f.axes.end(), axes.begin(), axes.end());
    return;
  }
  FactorSharding entry{place.dim, place.factor, axes};
  auto &factors = sharding.factors;
  factors.insert(std::upper_bound(factors.begin(), factors.end(), entry), entry);
}

static void dropSuffix(Sharding &sharding, const Place &place, size_t count) {
  if (place.dim < 0) {
    sharding.flat.resize(sharding.flat.size() - count);
    return;
  }
  for (auto f = sharding.factors.begin(); f != sharding.factors.end(); ++f) {
    if (f->dim != place.dim || f->factor != place.factor)
      continue;
    f->axes.resize(f->axes.size() - count);
    if (f->axes.empty())
      sharding.factors.erase(f);
    return;
  }
}

Sharding apply(const Sharding &before, const Move &move) {
  Sharding after = before;
  if (move.kind == CollectiveKind::AllReduce || move.kind == CollectiveKind::ReduceScatter) {
    auto &partial = after.partial;
    partial.erase(std::remove_if(partial.begin(), partial.end(),
                                 [&](const Partial &p) {
                                   return std::find(move.axes.begin(), move.axes.end(), p.axis) !=
                                          move.axes.end();
                                 }),
                  partial.end());
  }
  if (move.kind == CollectiveKind::AllGather || move.kind == CollectiveKind::AllToAll)
    dropSuffix(after, move.from, move.axes.size());
  if (move.kind == CollectiveKind::ReduceScatter || move.kind == CollectiveKind::ShardSlice ||
      move.kind == CollectiveKind::AllToAll)
    append(after, move.to, move.axes);
  return after;
}

/// Returns the elements on a rank; for a flat sharding, padding included.
static int64_t numLocalElements(const TensorLayout &layout, const Sharding &sharding) {
  int64_t count = layout.numElements();
  for (const FactorSharding &f : sharding.factors) // they divide every segment
    count /= groupSize(f.axes);
  int64_t n = groupSize(sharding.flat);
  return (count + n - 1) / n;
}

/// Returns the segments at `place` for a tensor with sharding `local`, the local side.
static std::vector<SegmentShape> segmentsAt(const TensorLayout &layout, const Sharding &local,
                                            const Place &place) {
  std::vector<SegmentShape> result;
  TensorLayout sizes = localLayout(layout, local);
  for (const Segment &segment : sizes.dims[place.dim].segments) {
    SegmentShape shape;
    bool seen = false;
    for (const Factor &factor : segment.factors) {
      if (factor.id == place.factor) {
        shape.k = factor.size;
        seen = true;
      } else {
        (seen ? shape.inner : shape.outer) *= factor.size;
      }
    }
    result.push_back(shape);
  }
  return result;
}

/// Returns the position of the gather, scatter or slice of a move.
static const Place &placeOf(const Move &move) {
  return move.kind == CollectiveKind::AllGather || move.kind == CollectiveKind::AllToAll ? move.from
                                                                                         : move.to;
}

static bool isAlongFlat(const Move &move) {
  return move.kind != CollectiveKind::AllReduce && placeOf(move).dim < 0;
}

Collective describeSize(const TensorLayout &layout, const Sharding &before, const Move &move) {
  Collective result;
  result.kind = move.kind;
  result.axes = joinParts(move.axes);
  if (!before.partial.empty())
    result.reduce = before.partial.front().kind;
  int64_t n = groupSize(move.axes), held = numLocalElements(layout, before);
  result.numElements = held;
  int64_t padded = held;
  if (move.kind == CollectiveKind::AllGather) {
    padded = held * n;
    result.numElements = isAlongFlat(move) ? numLocalElements(layout, apply(before, move)) : padded;
  } else if (isAlongFlat(move)) {
    padded = (held + n - 1) / n * n;
  }
  result.bytes = padded * layout.elementBytes;
  return result;
}

Collective describe(const TensorLayout &layout, const Sharding &before, const Move &move) {
  Collective result = describeSize(layout, before, move);
  if (move.kind == CollectiveKind::AllReduce)
    return result;
  Sharding after = apply(before, move);
  if (isAlongFlat(move)) {
    int64_t n = groupSize(move.axes);
    result.segments = {{1, result.bytes / layout.elementBytes / n, 1}};
    return result;
  }
  const Sharding &local = move.to.dim < 0 ? before : after;
  result.dim = placeOf(move).dim;
  result.segments =
      segmentsAt(layout, move.kind == CollectiveKind::AllToAll ? before : local, placeOf(move));
  if (move.kind == CollectiveKind::AllToAll) {
    result.splitDim = move.to.dim;
    result.splitSegments = segmentsAt(layout, after, move.to);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Parts of axes
//===----------------------------------------------------------------------===//

std::vector<AxisRef> joinParts(const std::vector<AxisRef> &axes) {
  std::vector<AxisRef> result;
  for (const AxisRef &axis : axes) {
    if (!result.empty() && result.back().axis == axis.axis &&
        result.back().pre * result.back().size == axis.pre)
      result.back().size *= axis.size;
    else
      result.push_back(axis);
  }
  return result;
}

/// Returns the cuts of axis number `axis` into common parts; empty if the parts do not nest.
static std::vector<int64_t> cutsOf(int axis, const std::vector<AxisRef> &used) {
  std::set<int64_t> cuts;
  for (const AxisRef &ref : used)
    if (ref.axis == axis)
      cuts.insert({ref.pre, ref.pre * ref.size});
  int64_t previous = 1;
  for (int64_t cut : cuts) {
    if (cut % previous != 0)
      return {};
    previous = cut;
  }
  return {cuts.begin(), cuts.end()};
}

static std::vector<AxisRef> splitAt(const std::vector<AxisRef> &axes,
                                    const std::vector<std::vector<int64_t>> &cuts) {
  std::vector<AxisRef> result;
  for (const AxisRef &ref : axes) {
    int64_t pre = ref.pre, end = ref.pre * ref.size;
    for (int64_t cut : cuts[ref.axis]) {
      if (cut <= pre || cut >= end)
        continue;
      result.push_back({ref.axis, pre, cut / pre});
      pre = cut;
    }
    result.push_back({ref.axis, pre, end / pre});
  }
  return result;
}

static void splitAt(Sharding &sharding, const std::vector<std::vector<int64_t>> &cuts) {
  for (FactorSharding &f : sharding.factors)
    f.axes = splitAt(f.axes, cuts);
  sharding.flat = splitAt(sharding.flat, cuts);
  std::vector<Partial> partial;
  for (const Partial &p : sharding.partial)
    for (const AxisRef &part : splitAt(std::vector<AxisRef>{p.axis}, cuts))
      partial.push_back({part, p.kind});
  sharding.partial = std::move(partial);
  normalize(sharding);
}

void splitIntoCommonParts(const Mesh &mesh, Sharding &a, Sharding &b) {
  normalize(a);
  normalize(b);
  std::vector<AxisRef> used = usedAxes(a), more = usedAxes(b);
  used.insert(used.end(), more.begin(), more.end());
  std::vector<std::vector<int64_t>> cuts;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    cuts.push_back(cutsOf(static_cast<int>(axis), used));
  splitAt(a, cuts);
  splitAt(b, cuts);
}

} // namespace tbc::reshard

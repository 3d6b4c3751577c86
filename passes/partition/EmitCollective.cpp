//===- EmitCollective.cpp - Resharding steps as ops ------------------------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Collective.h"

using namespace mlir;

namespace tbc {

using reshard::Collective;
using reshard::CollectiveKind;

static ArrayAttr axisNames(OpBuilder &builder, const reshard::Mesh &mesh,
                           const std::vector<reshard::AxisRef> &axes) {
  SmallVector<Attribute> names;
  for (const reshard::AxisRef &axis : axes)
    names.push_back(builder.getStringAttr(reshard::toString(mesh, {axis})));
  return builder.getArrayAttr(names);
}

static SmallVector<int64_t> segmentNumbers(const Collective &collective,
                                           const std::vector<reshard::SegmentShape> &segments,
                                           int dim) {
  if (dim < 0)
    return {collective.numElements};
  SmallVector<int64_t> numbers;
  for (const reshard::SegmentShape &segment : segments)
    numbers.append({segment.outer, segment.k, segment.inner});
  return numbers;
}

Value emitCollective(OpBuilder &builder, Location loc, Value input, const Collective &collective,
                     const reshard::Mesh &mesh, ArrayRef<int64_t> resultShape) {
  auto type = RankedTensorType::get(resultShape, tensorType(input).getElementType());
  ArrayAttr axes = axisNames(builder, mesh, collective.axes);
  SmallVector<int64_t> segments = segmentNumbers(collective, collective.segments, collective.dim);
  auto dim = builder.getI64IntegerAttr(collective.dim);
  auto segmentsAttr = builder.getDenseI64ArrayAttr(segments);
  switch (collective.kind) {
  case CollectiveKind::AllReduce: {
    SmallVector<int64_t> stages(collective.stages.begin(), collective.stages.end());
    return builder.create<AllReduceOp>(
        loc, type, input, axes,
        builder.getStringAttr(collective.reduce == reshard::ReduceKind::Sum ? "sum" : "max"),
        stages.empty() ? DenseI64ArrayAttr() : builder.getDenseI64ArrayAttr(stages));
  }
  case CollectiveKind::AllGather:
    return builder.create<AllGatherOp>(loc, type, input, axes, dim, segmentsAttr);
  case CollectiveKind::ReduceScatter:
    return builder.create<ReduceScatterOp>(loc, type, input, axes, dim, segmentsAttr);
  case CollectiveKind::ShardSlice:
    return builder.create<ShardSliceOp>(loc, type, input, axes, dim, segmentsAttr);
  case CollectiveKind::AllToAll:
    return builder.create<AllToAllOp>(
        loc, type, input, axes, dim, segmentsAttr, builder.getI64IntegerAttr(collective.splitDim),
        builder.getDenseI64ArrayAttr(
            segmentNumbers(collective, collective.splitSegments, collective.splitDim)));
  case CollectiveKind::Permute:
    return builder.create<PermuteOp>(loc, type, input, axes);
  case CollectiveKind::Send:
    break;
  }
  llvm_unreachable("a send is no step of a resharding");
}

/// The extent of a dim made of `segments` on the local (n = 1) or the full side of a group of n.
static int64_t extent(const std::vector<reshard::SegmentShape> &segments, int64_t n) {
  int64_t total = 0;
  for (const reshard::SegmentShape &segment : segments)
    total += segment.outer * segment.k * n * segment.inner;
  return total;
}

/// Returns the shape after `collective` of a tensor of shape `shape`. `unflattened` is the whole
/// shape that a flat gather restores.
static SmallVector<int64_t> shapeAfter(const Collective &collective, ArrayRef<int64_t> shape,
                                       ArrayRef<int64_t> unflattened) {
  int64_t n = reshard::groupSize(collective.axes);
  SmallVector<int64_t> result(shape);
  switch (collective.kind) {
  case CollectiveKind::AllReduce:
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
    return result;
  case CollectiveKind::AllGather:
    if (collective.dim < 0)
      return SmallVector<int64_t>(unflattened);
    result[collective.dim] = extent(collective.segments, n);
    return result;
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::ShardSlice:
    if (collective.dim < 0)
      return {(collective.numElements + n - 1) / n};
    result[collective.dim] = extent(collective.segments, 1);
    return result;
  case CollectiveKind::AllToAll:
    result[collective.dim] = extent(collective.segments, n);
    result[collective.splitDim] = extent(collective.splitSegments, 1);
    return result;
  }
  llvm_unreachable("unknown kind of collective");
}

/// Emits step `collective` of `reshard` on the result of the steps before it.
static Value emitStep(OpBuilder &builder, Location loc, Value value, const Collective &collective,
                      const reshard::Reshard &reshard, const reshard::TensorLayout &layout,
                      const reshard::Mesh &mesh) {
  // A flat shard is a part of the local tensor under the factors of its sharding.
  reshard::Sharding unflat = reshard.from.flat.empty() ? reshard.to : reshard.from;
  unflat.flat.clear();
  SmallVector<int64_t> whole(llvm::to_vector(reshard::localShape(layout, unflat)));
  return emitCollective(builder, loc, value, collective, mesh,
                        shapeAfter(collective, tensorType(value).getShape(), whole));
}

Value emitReshard(OpBuilder &builder, Location loc, Value value, const reshard::Reshard &reshard,
                  const reshard::TensorLayout &layout, const reshard::Mesh &mesh) {
  for (const Collective &collective : reshard.steps)
    value = emitStep(builder, loc, value, collective, reshard, layout, mesh);
  return value;
}

void emitBucket(OpBuilder &builder, MutableArrayRef<BucketMember> members, int bucket,
                const reshard::Mesh &mesh) {
  SmallVector<size_t> at(members.size(), 0); // into the steps of each
  auto step = [&](size_t i) -> const Collective * {
    const std::vector<Collective> &steps = members[i].reshard->steps;
    return at[i] < steps.size() ? &steps[at[i]] : nullptr;
  };
  auto take = [&](size_t i) {
    BucketMember &member = members[i];
    member.value = emitStep(builder, member.loc, member.value, *step(i), *member.reshard,
                            *member.layout, mesh);
    ++at[i];
  };
  for (int64_t message = 0;; ++message) {
    for (size_t i = 0; i < members.size(); ++i)
      while (step(i) && step(i)->kind == CollectiveKind::ShardSlice)
        take(i);
    if (members.empty() || !step(0))
      return; // all have as many messages
    for (size_t i = 0; i < members.size(); ++i) {
      take(i);
      members[i].value.getDefiningOp()->setAttr(
          kBucketAttr, builder.getDenseI64ArrayAttr({int64_t(bucket), message}));
    }
  }
}

} // namespace tbc

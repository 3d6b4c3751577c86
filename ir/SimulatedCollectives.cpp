//===- SimulatedCollectives.cpp - Collectives on the values of all ranks ---===//

#include "ir/SimulatedCollectives.h"

#include "ir/Collective.h"

using namespace mlir;

namespace tbc {

using kernels::Residue;
using kernels::Tensor;

namespace {

/// A rank's group along some axes: its members in order of their group index (the first axis
/// slowest), and the rank's own index in it.
struct Group {
  SmallVector<size_t> members;
  size_t index = 0;
};

/// A dim cut over a group: its size on one rank and as a whole, and the indices of a rank. dim =
/// -1: the flattened tensor, padded at its end.
struct Cut {
  int64_t dim = -1;
  SmallVector<int64_t> segments;

  int64_t localSize(int64_t groupSize) const {
    if (dim == -1)
      return (segments[0] + groupSize - 1) / groupSize;
    int64_t size = 0;
    for (size_t i = 0; i < segments.size(); i += 3)
      size += segments[i] * segments[i + 1] * segments[i + 2];
    return size;
  }
  int64_t fullSize(int64_t groupSize) const {
    return dim == -1 ? segments[0] : groupSize * localSize(groupSize);
  }
  SmallVector<int64_t> indices(int64_t groupSize, int64_t groupIndex) const;
};

} // namespace

/// Returns the indices of the whole dim on group member `groupIndex`, in its order; padding has
/// indices past the end.
SmallVector<int64_t> Cut::indices(int64_t groupSize, int64_t groupIndex) const {
  SmallVector<int64_t> result;
  if (dim == -1) {
    int64_t size = localSize(groupSize);
    for (int64_t i = 0; i < size; ++i)
      result.push_back(groupIndex * size + i);
    return result;
  }
  int64_t start = 0;
  for (size_t s = 0; s < segments.size(); s += 3) {
    int64_t outer = segments[s], k = segments[s + 1], inner = segments[s + 2];
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < k * inner; ++i)
        result.push_back(start + (o * groupSize + groupIndex) * k * inner + i);
    start += outer * groupSize * k * inner;
  }
  return result;
}

bool isCollective(Operation *op) {
  return isa<AllReduceOp, AllGatherOp, ReduceScatterOp, ShardSliceOp, AllToAllOp, PermuteOp>(op);
}

/// The group of every rank along the op's axes.
static FailureOr<SmallVector<Group>> findGroups(Operation *op, const reshard::Mesh &mesh) {
  SmallVector<int64_t> strides(mesh.axes.size(), 1);
  for (size_t i = mesh.axes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * mesh.axes[i].size;
  size_t numRanks = mesh.axes.empty() ? 1 : strides[0] * mesh.axes[0].size;

  SmallVector<size_t> axes;
  for (StringRef name : op->getAttrOfType<ArrayAttr>("axes").getAsValueRange<StringAttr>()) {
    size_t axis = 0;
    while (axis < mesh.axes.size() && mesh.axes[axis].name != name)
      ++axis;
    if (axis == mesh.axes.size())
      return op->emitOpError() << "names the axis \"" << name << "\", which the mesh lacks";
    axes.push_back(axis);
  }
  SmallVector<Group> groups(numRanks);
  for (size_t rank = 0; rank < numRanks; ++rank) {
    int64_t base = rank, size = 1;
    for (size_t axis : axes) {
      int64_t coordinate = rank / strides[axis] % mesh.axes[axis].size;
      base -= coordinate * strides[axis];
      groups[rank].index = groups[rank].index * mesh.axes[axis].size + coordinate;
      size *= mesh.axes[axis].size;
    }
    for (int64_t member = 0; member < size; ++member) {
      int64_t rest = member, other = base;
      for (size_t axis : llvm::reverse(axes)) {
        other += rest % mesh.axes[axis].size * strides[axis];
        rest /= mesh.axes[axis].size;
      }
      groups[rank].members.push_back(other);
    }
  }
  return groups;
}

/// Returns fn(T()) for the element type T of `tensor`.
template <typename Fn> static Tensor dispatchHeld(const Tensor &tensor, Fn &&fn) {
  if (tensor.holds<float>())
    return fn(float());
  if (tensor.holds<double>())
    return fn(double());
  if (tensor.holds<Residue>())
    return fn(Residue());
  if (tensor.holds<kernels::Residue251>())
    return fn(kernels::Residue251());
  return fn(int64_t());
}

/// The sum or maximum of the group's tensors.
static Tensor reduceGroup(const RankTensors &input, const Group &group, bool isMax) {
  const Tensor &first = input[group.members[0]];
  return dispatchHeld(first, [&](auto zero) {
    using T = decltype(zero);
    // Floats are summed in double and rounded once.
    using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
    std::vector<Sum> sum(first.data<T>().begin(), first.data<T>().end());
    for (size_t member : ArrayRef(group.members).drop_front()) {
      const std::vector<T> &other = input[member].data<T>();
      for (size_t i = 0; i < sum.size(); ++i) {
        if (!isMax)
          sum[i] = sum[i] + Sum(other[i]);
        else if constexpr (std::is_class_v<T>)
          sum[i] = kernels::orderKey(other[i]) > kernels::orderKey(sum[i]) ? other[i] : sum[i];
        else
          sum[i] = Sum(other[i]) > sum[i] ? Sum(other[i]) : sum[i];
      }
    }
    return Tensor(first.type(), std::vector<T>(sum.begin(), sum.end()));
  });
}

/// Copies between the tensor and its share along `cut`: calls copy(whole offset, share offset) for
/// every element of the share outside the padding.
template <typename Fn>
static void forEachShared(const kernels::Shape &whole, const Cut &cut, const Group &group,
                          size_t index, Fn &&copy) {
  SmallVector<int64_t> indices = cut.indices(group.members.size(), index);
  int64_t outer = 1, inner = 1, size = cut.fullSize(group.members.size());
  for (int64_t i = 0; cut.dim >= 0 && i < int64_t(whole.size()); ++i)
    (i < cut.dim ? outer : inner) *= i == cut.dim ? 1 : whole[i];
  for (int64_t o = 0; o < outer; ++o)
    for (auto [local, full] : llvm::enumerate(indices))
      for (int64_t i = 0; i < inner && full < size; ++i)
        copy((o * size + full) * inner + i, (o * indices.size() + local) * inner + i);
}

/// The shape of the share of a tensor of shape `whole`.
static kernels::Shape shareShape(const kernels::Shape &whole, const Cut &cut, size_t groupSize) {
  if (cut.dim == -1)
    return {cut.localSize(groupSize)};
  kernels::Shape shape = whole;
  shape[cut.dim] = cut.localSize(groupSize);
  return shape;
}

/// A rank's own share of its `whole` tensor; padding is zero.
static Tensor takeShare(const Tensor &whole, const Cut &cut, const Group &group) {
  kernels::TensorType type{whole.dtype(), shareShape(whole.shape(), cut, group.members.size())};
  return dispatchHeld(whole, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(kernels::numElements(type.shape), T{});
    const std::vector<T> &from = whole.data<T>();
    forEachShared(whole.shape(), cut, group, group.index,
                  [&](int64_t full, int64_t local) { elements[local] = from[full]; });
    return Tensor(type, std::move(elements));
  });
}

/// Joins the group's shares into a tensor of shape `shape`.
static Tensor joinShares(const RankTensors &input, const Cut &cut, const Group &group,
                         const kernels::Shape &shape) {
  const Tensor &first = input[group.members[0]];
  return dispatchHeld(first, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(kernels::numElements(shape), T{});
    for (auto [index, member] : llvm::enumerate(group.members)) {
      const std::vector<T> &from = input[member].data<T>();
      forEachShared(shape, cut, group, index,
                    [&](int64_t full, int64_t local) { elements[full] = from[local]; });
    }
    return Tensor(kernels::TensorType{first.dtype(), shape}, std::move(elements));
  });
}

/// Whether `whole` cut along `cut` has shares of shape `share`; the error is at `op`.
static LogicalResult checkCut(Operation *op, const kernels::Shape &whole,
                              const kernels::Shape &share, const Cut &cut, size_t groupSize) {
  bool fits = cut.dim == -1 ? kernels::numElements(whole) == cut.segments[0]
                            : whole[cut.dim] == cut.fullSize(groupSize);
  if (fits && shareShape(whole, cut, groupSize) == share)
    return success();
  return op->emitOpError() << "has segments that do not cut " << op->getOperand(0).getType()
                           << " and " << op->getResult(0).getType() << " over " << groupSize
                           << " ranks";
}

FailureOr<SmallVector<RankTensors>>
simulateCollective(Operation *op, ArrayRef<RankTensors> operands, const reshard::Mesh &mesh) {
  FailureOr<SmallVector<Group>> groups = findGroups(op, mesh);
  if (failed(groups))
    return failure();
  const RankTensors &input = operands[0];
  ArrayRef<int64_t> resultShape = cast<RankedTensorType>(op->getResult(0).getType()).getShape();
  kernels::Shape shape(resultShape.begin(), resultShape.end());
  const kernels::Shape &inputShape = input[0].shape();
  size_t groupSize = groups->front().members.size();

  Cut cut, split;
  if (!isa<AllReduceOp, PermuteOp>(op)) {
    cut.dim = op->getAttrOfType<IntegerAttr>("dim").getInt();
    cut.segments =
        SmallVector<int64_t>(op->getAttrOfType<DenseI64ArrayAttr>("segments").asArrayRef());
  }
  kernels::Shape joined = shape;
  if (auto allReduce = dyn_cast<AllReduceOp>(op)) {
    if (allReduce.getStages())
      return op->emitOpError(
          "reduces over some pipeline stages, which are different functions; run "
          "the compiled program instead");
    if (shape != inputShape)
      return op->emitOpError("changes the shape of its operand");
  } else if (isa<PermuteOp>(op)) {
    // nothing is cut
  } else if (auto allToAll = dyn_cast<AllToAllOp>(op)) {
    split.dim = allToAll.getSplitDim();
    split.segments = SmallVector<int64_t>(allToAll.getSplitSegments());
    joined = inputShape;
    if (cut.dim < 0 || split.dim < 0)
      return op->emitOpError("cannot exchange a flattened tensor");
    joined[cut.dim] = cut.fullSize(groupSize);
    if (failed(checkCut(op, joined, inputShape, cut, groupSize)) ||
        failed(checkCut(op, joined, shape, split, groupSize)))
      return failure();
  } else {
    bool isGather = isa<AllGatherOp>(op);
    if (failed(checkCut(op, isGather ? shape : inputShape, isGather ? inputShape : shape, cut,
                        groupSize)))
      return failure();
  }

  RankTensors result;
  for (size_t rank = 0; rank < groups->size(); ++rank) {
    const Group &group = (*groups)[rank];
    if (auto allReduce = dyn_cast<AllReduceOp>(op))
      result.push_back(reduceGroup(input, group, allReduce.getKind() == "max"));
    else if (isa<PermuteOp>(op))
      result.push_back(input[group.members[(group.index + groupSize - 1) % groupSize]]);
    else if (isa<AllGatherOp>(op))
      result.push_back(joinShares(input, cut, group, joined));
    else if (isa<ReduceScatterOp>(op))
      result.push_back(takeShare(reduceGroup(input, group, false), cut, group));
    else if (isa<ShardSliceOp>(op))
      result.push_back(takeShare(input[rank], cut, group));
    else
      result.push_back(takeShare(joinShares(input, cut, group, joined), split, group));
  }
  return SmallVector<RankTensors>{std::move(result)};
}

} // namespace tbc

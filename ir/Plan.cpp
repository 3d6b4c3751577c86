//===- Plan.cpp - Attributes of a plan from and to planner/reshard ---------===//

#include "ir/Plan.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::AxisRef;
using reshard::Mesh;

bool isPlanAttribute(StringRef name) {
  return llvm::is_contained({kStrategyAttr, kChunkBeginAttr, kChunkAttr, kRecomputeAttr,
                             kRecomputedAttr, kOffloadAttr, kShardingAttr, kProducedAttr,
                             kWantedAttr},
                            name);
}

MeshAttr toAttribute(MLIRContext *context, const Mesh &mesh) {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  for (const reshard::MeshAxis &axis : mesh.axes) {
    names.push_back(StringAttr::get(context, axis.name));
    sizes.push_back(axis.size);
  }
  return MeshAttr::get(context, names, sizes);
}

Mesh toMesh(MeshAttr attr) {
  Mesh mesh;
  for (auto [name, size] : llvm::zip_equal(attr.getNames(), attr.getSizes()))
    mesh.axes.push_back({name.str(), size});
  return mesh;
}

static AxisAttr toAttribute(MLIRContext *context, const Mesh &mesh, const AxisRef &ref) {
  const reshard::MeshAxis &axis = mesh.axes[ref.axis];
  bool isWhole = ref.size == axis.size;
  return AxisAttr::get(context, axis.name, isWhole ? 1 : ref.pre, isWhole ? 0 : ref.size);
}

ArrayAttr toAttribute(MLIRContext *context, const Mesh &mesh, const std::vector<AxisRef> &axes) {
  SmallVector<Attribute> list;
  for (const AxisRef &axis : axes)
    list.push_back(toAttribute(context, mesh, axis));
  return ArrayAttr::get(context, list);
}

static FailureOr<AxisRef> toAxis(Location loc, const Mesh &mesh, AxisAttr attr) {
  int index = mesh.axisIndex(attr.getName().str());
  if (index < 0)
    return emitError(loc) << "the mesh has no axis \"" << attr.getName() << "\"";
  AxisRef axis = reshard::wholeAxis(mesh, index);
  if (attr.getSize() == 0)
    return axis;
  if (axis.size % (attr.getPre() * attr.getSize()) != 0)
    return emitError(loc) << attr << " is no part of an axis of size " << axis.size;
  axis.pre = attr.getPre();
  axis.size = attr.getSize();
  return axis;
}

FailureOr<std::vector<AxisRef>> toAxes(Location loc, const Mesh &mesh, ArrayAttr attr) {
  std::vector<AxisRef> axes;
  for (AxisAttr entry : attr.getAsRange<AxisAttr>()) {
    FailureOr<AxisRef> axis = toAxis(loc, mesh, entry);
    if (failed(axis))
      return failure();
    axes.push_back(*axis);
  }
  return axes;
}

StrategyAttr toAttribute(MLIRContext *context, const Mesh &mesh,
                         const reshard::OpStrategy &strategy) {
  SmallVector<int64_t> loops;
  SmallVector<Attribute> axes;
  for (const auto &[loop, ofLoop] : strategy.loopAxes) {
    if (ofLoop.empty())
      continue;
    loops.push_back(loop);
    axes.push_back(toAttribute(context, mesh, ofLoop));
  }
  return StrategyAttr::get(context, loops, ArrayAttr::get(context, axes));
}

FailureOr<reshard::OpStrategy> toStrategy(Location loc, const Mesh &mesh, StrategyAttr attr) {
  reshard::OpStrategy strategy;
  for (auto [loop, axes] : llvm::zip_equal(attr.getLoops(), attr.getAxes())) {
    FailureOr<std::vector<AxisRef>> list = toAxes(loc, mesh, cast<ArrayAttr>(axes));
    if (failed(list))
      return failure();
    strategy.loopAxes[int(loop)] = std::move(*list);
  }
  return strategy;
}

ShardingAttr toAttribute(MLIRContext *context, const Mesh &mesh, const reshard::Sharding &sharding,
                         int64_t rank) {
  SmallVector<SmallVector<Attribute>> dims(rank);
  for (const reshard::FactorSharding &factor : sharding.factors)
    dims[factor.dim].push_back(
        FactorAxesAttr::get(context, factor.factor, toAttribute(context, mesh, factor.axes)));
  SmallVector<Attribute> dimAttrs;
  for (const SmallVector<Attribute> &dim : dims)
    dimAttrs.push_back(ArrayAttr::get(context, dim));
  std::vector<AxisRef> partial;
  bool isMax = false;
  for (const reshard::Partial &sum : sharding.partial) {
    partial.push_back(sum.axis);
    isMax = sum.kind == reshard::ReduceKind::Max; // all are of one kind (whyInvalid)
  }
  return ShardingAttr::get(context, ArrayAttr::get(context, dimAttrs),
                           toAttribute(context, mesh, partial), isMax,
                           toAttribute(context, mesh, sharding.flat));
}

FailureOr<reshard::Sharding> toSharding(Location loc, const Mesh &mesh, ShardingAttr attr) {
  reshard::Sharding sharding;
  for (auto [d, dim] : llvm::enumerate(attr.getDims().getAsRange<ArrayAttr>()))
    for (FactorAxesAttr entry : dim.getAsRange<FactorAxesAttr>()) {
      FailureOr<std::vector<AxisRef>> axes = toAxes(loc, mesh, entry.getAxes());
      if (failed(axes))
        return failure();
      sharding.factors.push_back({int(d), entry.getFactor(), std::move(*axes)});
    }
  FailureOr<std::vector<AxisRef>> partial = toAxes(loc, mesh, attr.getPartial());
  FailureOr<std::vector<AxisRef>> flat = toAxes(loc, mesh, attr.getFlat());
  if (failed(partial) || failed(flat))
    return failure();
  for (const AxisRef &axis : *partial)
    sharding.partial.push_back(
        {axis, attr.getIsMax() ? reshard::ReduceKind::Max : reshard::ReduceKind::Sum});
  sharding.flat = std::move(*flat);
  reshard::normalize(sharding);
  return sharding;
}

ParameterPlanAttr toAttribute(MLIRContext *context, const Mesh &mesh,
                              const reshard::ParameterPlan &plan) {
  return ParameterPlanAttr::get(context, plan.zero, plan.keepGathered,
                                toAttribute(context, mesh, plan.zeroAxes),
                                toAttribute(context, mesh, plan.reduceAxes));
}

FailureOr<reshard::ParameterPlan> toParameterPlan(Location loc, const Mesh &mesh,
                                                  ParameterPlanAttr attr) {
  reshard::ParameterPlan plan;
  plan.zero = int(attr.getZero());
  plan.keepGathered = attr.getKeepGathered();
  FailureOr<std::vector<AxisRef>> zero = toAxes(loc, mesh, attr.getZeroAxes());
  FailureOr<std::vector<AxisRef>> reduce = toAxes(loc, mesh, attr.getReduceAxes());
  if (failed(zero) || failed(reduce))
    return failure();
  plan.zeroAxes = std::move(*zero);
  plan.reduceAxes = std::move(*reduce);
  return plan;
}

} // namespace tbc

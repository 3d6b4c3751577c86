//===- MeshTables.cpp - Devices and networks shared by candidates ---------===//

#include "planner/search/MeshTables.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

const MeshStages &MeshTables::stagesFor(const MeshShape &mesh) const {
  return *stages.get(mesh.sizes(), [&] {
    Mesh axes = mesh.mesh();
    auto known = std::make_unique<MeshStages>(MeshStages{
        *StageDevices::make(problem.cluster, mesh.pp, mesh.numRanks() / mesh.pp), nullptr});
    known->networks =
        std::make_unique<StageNetworks>(known->devices, axes, axisIndex(axes, Axis::Pipeline));
    return known;
  });
}

const Cluster &MeshTables::clusterOf(const MeshShape &mesh, int stage) const {
  return problem.isMixed ? stagesFor(mesh).devices.of(stage) : problem.cluster;
}

const NetworkCost &MeshTables::networkFor(const MeshShape &mesh) const {
  if (!problem.isMixed)
    return stagesFor(mesh).networks->of(0);
  return *networks.get(mesh.sizes(), [&] {
    Mesh axes = mesh.mesh();
    return std::make_unique<NetworkCost>(problem.cluster, axes, axisIndex(axes, Axis::Pipeline));
  });
}

const BatchSumSeconds &MeshTables::batchSumSeconds(const MeshShape &mesh) const {
  return batchSumSeconds(mesh, networkFor(mesh), {-1, 0, false});
}

const BatchSumSeconds &MeshTables::batchSumSeconds(const MeshShape &mesh, int stage) const {
  const MeshStages &of = stagesFor(mesh);
  return of.devices.isUniform()
             ? batchSumSeconds(mesh)
             : batchSumSeconds(mesh, of.networks->of(stage), of.devices.kindOf(stage));
}

const BatchSumSeconds &MeshTables::batchSumSeconds(const MeshShape &shape,
                                                   const NetworkCost &network,
                                                   const StageKind &kind) const {
  return sumSeconds.get({shape.sizes(), kind}, [&] {
    const size_t numForward = size_t(problem.numForward);
    BatchSumSeconds seconds;
    seconds.forward.assign(numForward + 1, 0);
    seconds.backward = seconds.forward;
    const Mesh mesh = shape.mesh();
    std::vector<AxisRef> data;
    for (const std::string &name : mesh::axisNames(Divides::Samples))
      if (int axis = mesh.axisIndex(name); axis >= 0)
        data.push_back(wholeAxis(mesh, axis));
    const GroupShape group = network.groupShape(data);
    for (const BatchSum &sum : sumsOverBatch.get([&] { return batchSums(problem.graph); })) {
      double bytes = sum.bytes / double(shape.tp);
      double atOnce = network.seconds(CollectiveKind::AllReduce, group, bytes);
      double inParts = network.seconds(CollectiveKind::ReduceScatter, group, bytes) +
                       network.seconds(CollectiveKind::AllGather, group, bytes);
      (sum.isForward ? seconds.forward : seconds.backward)[size_t(sum.anchor) + 1] +=
          std::min(atOnce, inParts);
    }
    for (size_t op = 1; op <= numForward; ++op) {
      seconds.forward[op] += seconds.forward[op - 1];
      seconds.backward[op] += seconds.backward[op - 1];
    }
    return seconds;
  });
}

} // namespace tbc::planner

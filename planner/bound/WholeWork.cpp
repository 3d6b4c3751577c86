//===- WholeWork.cpp - Kernel seconds without any split -------------------===//

#include "planner/bound/WholeWork.h"

#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

WholeWork::WholeWork(const Graph &graph, const std::vector<KernelShare> &shares) {
  std::map<std::tuple<KernelClass, double, double, DType, bool, bool, double, double, int>, int>
      numbers;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    const KernelClass kernelClass = graph.ops[op].kernelClass;
    LocalWork work = localWork(graph, op, OpStrategy(), shares[op]);
    const LaunchesFn &launchesOf = shares[op].own.launchesOf;
    auto [found, isNew] =
        numbers.try_emplace({kernelClass, work.flops, work.bytes, work.dtype, work.isFused,
                             work.isCopy, work.depth, work.launches, launchesOf ? op : -1},
                            int(kinds.size()));
    if (isNew && launchesOf)
      kinds.push_back({kernelClass, work, launchesOf, localOperandShapes(graph, op, OpStrategy())});
    else if (isNew)
      kinds.push_back({kernelClass, work, nullptr, {}});
    kindOf.push_back(found->second);
  }
}

std::vector<double> WholeWork::dividedSeconds(const Cluster &cluster, int64_t devices) const {
  std::vector<double> ofKind, seconds;
  for (const Kind &kind : kinds) {
    LocalWork work = kind.work;
    work.flops /= double(devices);
    work.bytes /= double(devices);
    if (kind.launchesOf) { // no strategy divides a dim by more
      std::vector<std::vector<int64_t>> shapes = kind.shapes;
      for (std::vector<int64_t> &shape : shapes)
        for (int64_t &size : shape)
          size = (size + devices - 1) / devices;
      work.launches = double(kind.launchesOf(shapes));
    }
    ofKind.push_back(kernelSeconds(cluster, kind.kernelClass, work));
  }
  for (int kind : kindOf)
    seconds.push_back(ofKind[size_t(kind)]);
  return seconds;
}

} // namespace tbc::planner

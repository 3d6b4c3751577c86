//===- WholeWork.cpp - Kernel seconds without any split -------------------===//

#include "planner/bound/WholeWork.h"

#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

WholeWork::WholeWork(const Graph &graph, const std::vector<KernelShare> &shares) {
  std::map<std::tuple<KernelClass, double, double, DType, bool, bool, double>, int> numbers;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    const KernelClass kernelClass = graph.ops[op].kernelClass;
    LocalWork work = localWork(graph, op, OpStrategy(), shares[op]);
    auto [found, isNew] = numbers.try_emplace(
        {kernelClass, work.flops, work.bytes, work.dtype, work.isFused, work.isCopy, work.depth},
        int(kinds.size()));
    if (isNew)
      kinds.push_back({kernelClass, work});
    kindOf.push_back(found->second);
  }
}

std::vector<double> WholeWork::dividedSeconds(const Cluster &cluster, int64_t devices) const {
  std::vector<double> ofKind, seconds;
  for (const Kind &kind : kinds) {
    LocalWork work = kind.work;
    work.flops /= double(devices);
    work.bytes /= double(devices);
    ofKind.push_back(kernelSeconds(cluster, kind.kernelClass, work));
  }
  for (int kind : kindOf)
    seconds.push_back(ofKind[size_t(kind)]);
  return seconds;
}

} // namespace tbc::planner

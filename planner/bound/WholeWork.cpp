//===- WholeWork.cpp - Kernel seconds without any split -------------------===//

#include "planner/bound/WholeWork.h"
#include "planner/reshard/Fp8.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

WholeWork::WholeWork(const Graph &graph, const std::vector<KernelShare> &shares) {
  std::map<std::tuple<KernelClass, double, double, DType, bool, bool, double, double, double,
                      int64_t, int>,
           int>
      numbers;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    const KernelClass kernelClass = graph.ops[op].kernelClass;
    LocalWork work = workInOwnTypes(graph, op, OpStrategy(), shares[op]);
    std::optional<LocalWork> inFp8;
    if (graph.ops[op].fp8.isRounded)
      inFp8 = workInFp8(graph, op, OpStrategy(), shares[op]);
    const int64_t ranks = inFp8 ? ranksInFp8(graph, op) : 0;
    const LaunchesFn &launchesOf = shares[op].own.launchesOf;
    auto [found, isNew] = numbers.try_emplace(
        {kernelClass, work.flops, work.bytes, work.dtype, work.isFused, work.isCopy, work.depth,
         work.launches, inFp8 ? inFp8->roundingBytes : -1, ranks, launchesOf ? op : -1},
        int(kinds.size()));
    if (isNew)
      kinds.push_back({kernelClass, work, inFp8, ranks, launchesOf, {}});
    if (isNew && launchesOf)
      kinds.back().shapes = localOperandShapes(graph, op, OpStrategy());
    kindOf.push_back(found->second);
  }
}

static LocalWork divided(LocalWork work, int64_t devices) {
  work.flops /= double(devices);
  work.bytes /= double(devices);
  work.roundingBytes /= double(devices);
  return work;
}

std::vector<double> WholeWork::dividedSeconds(const Cluster &cluster, int64_t devices) const {
  std::vector<double> ofKind, seconds;
  for (const Kind &kind : kinds) {
    LocalWork work = divided(kind.work, devices);
    if (kind.launchesOf) { // no strategy divides a dim by more
      std::vector<std::vector<int64_t>> shapes = kind.shapes;
      for (std::vector<int64_t> &shape : shapes)
        for (int64_t &size : shape)
          size = (size + devices - 1) / devices;
      work.launches = double(kind.launchesOf(shapes));
    }
    double least = kernelSeconds(cluster, kind.kernelClass, work);
    if (kind.inFp8) {
      const double inFp8 = kernelSeconds(cluster, kind.kernelClass, divided(*kind.inFp8, devices));
      const bool isAlways = kind.ranksInFp8 > 0 && kind.ranksInFp8 % devices == 0;
      least = isAlways ? inFp8 : std::min(least, inFp8);
    }
    ofKind.push_back(least);
  }
  for (int kind : kindOf)
    seconds.push_back(ofKind[size_t(kind)]);
  return seconds;
}

} // namespace tbc::planner

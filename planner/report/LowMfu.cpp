//===- LowMfu.cpp - Why a plan uses little of its devices -----------------===//

#include "planner/report/LowMfu.h"

#include "planner/support/Format.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tbc::planner {

namespace {

constexpr double lowMfu = 0.05, shortSeconds = 1e-3;

/// A name and its share of a whole.
struct Share {
  std::string name;
  double share = 0;
};

/// The largest part of the step.
Share largestPart(const TimeSplit &t) {
  const std::pair<const char *, double> parts[] = {{"kernels", t.compute},
                                                   {"recomputed kernels", t.recompute},
                                                   {"collectives between ops", t.operands},
                                                   {"data communication", t.data},
                                                   {"pipeline sends and bubble", t.pipeline},
                                                   {"the optimizer's update", t.update},
                                                   {"copies to and from the host", t.host},
                                                   {"waiting for launches", t.launches}};
  const auto *largest =
      std::max_element(std::begin(parts), std::end(parts),
                       [](const auto &a, const auto &b) { return a.second < b.second; });
  return {largest->first, largest->second / std::max(t.total(), 1e-30)};
}

/// The class of kernels that takes most of the kernels' time; no name if the plan does not say.
Share largestKernelClass(const Prediction &prediction) {
  std::map<std::string, double> seconds;
  double total = 0;
  for (const ChunkSeconds &chunk : prediction.chunks)
    for (StagePart part :
         {&StageSeconds::forward, &StageSeconds::backward, &StageSeconds::recompute,
          &StageSeconds::weight, &StageSeconds::recomputeWeight})
      for (const WorkSum &work : chunk.of(part)) {
        seconds[work.name] += work.seconds;
        total += work.seconds;
      }
  Share largest;
  for (const auto &[name, sum] : seconds)
    if (sum / total > largest.share)
      largest = {name, sum / total};
  return largest;
}

} // namespace

std::string lowMfuWarning(const Plan &plan) {
  const Prediction &p = plan.prediction;
  if (p.mfu >= lowMfu || p.mfu * p.stepSeconds < shortSeconds)
    return "";
  Share part = largestPart(p.time), kernels = largestKernelClass(p);
  std::string text = format("MFU %.1f %%: %.0f %% of the step is %s", 100 * p.mfu, 100 * part.share,
                            part.name.c_str());
  bool areKernels = part.name.find("kernels") != std::string::npos;
  if (areKernels && !kernels.name.empty())
    text += format(", %.0f %% of their time in kernels of class %s", 100 * kernels.share,
                   kernels.name.c_str());
  if (areKernels)
    return text + "; tbc check " + plan.job.modelPath +
           " says which attention or experts were not recognised";
  return text + "; fewer devices, a larger batch or other pins may use them better";
}

} // namespace tbc::planner

//===- Fp8Notes.cpp - What matmuls in 8 bits are worth --------------------===//

#include "planner/report/Fp8Notes.h"

#include "planner/predict/Evaluate.h"
#include "planner/reshard/Fp8.h"
#include "planner/support/Format.h"

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns which matmuls of `step` keep their types; empty: none does.
static std::string keptTypes(const PlannedStep &step, const Plan &plan) {
  int64_t kept = 0, all = 0;
  double flopsKept = 0, flops = 0;
  for (size_t op = 0; op < step.graph.ops.size(); ++op) {
    const GraphOp &of = step.graph.ops[op];
    if (!of.fp8.isRounded || step.isRecomputed(int(op)))
      continue;
    ++all;
    flops += of.flops;
    if (isInFp8(step.graph, int(op), step.assignment.strategies[op]))
      continue;
    ++kept;
    flopsKept += of.flops;
  }
  if (kept == 0)
    return "";
  return format("%lld of %lld matmuls, %.0f %% of their FLOPs, stay in %s: sizes on a rank are no "
                "multiples of 16, or operands take over 2 GiB",
                (long long)kept, (long long)all, 100 * flopsKept / flops, name(plan.job.precision));
}

Result<std::vector<std::string>> fp8Warnings(const Graph &graph, const PlannedStep &step,
                                             const Plan &plan) {
  std::vector<std::string> warnings;
  if (plan.job.matmulPrecision == MatmulPrecision::Own)
    return warnings;
  Plan without = plan;
  without.job.matmulPrecision = MatmulPrecision::Own;
  Result<Prediction> own = predict(graph, without);
  if (!own)
    return own.error();
  if (own->stepSeconds <= plan.prediction.stepSeconds)
    warnings.push_back("matmuls in fp8 do not pay: the same plan takes " +
                       formatSeconds(own->stepSeconds) + " without them, not " +
                       formatSeconds(plan.prediction.stepSeconds) +
                       "; leave out --matmul-precision fp8");
  if (std::string kept = keptTypes(step, plan); !kept.empty())
    warnings.push_back(std::move(kept));
  return warnings;
}

} // namespace tbc::planner

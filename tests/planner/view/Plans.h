//===- Plans.h - Plans for tests of the report -----------------------------===//

#ifndef TBC_TESTS_PLANNER_VIEW_PLANS_H
#define TBC_TESTS_PLANNER_VIEW_PLANS_H

#include "planner/plan/Plan.h"
#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <string>

namespace tbc::planner::test {

/// Returns the best plan for a chain of matmuls on the mesh `mesh` and the schedule `schedule`, if
/// any.
inline Plan planOf(const std::string &mesh, const std::string &schedule = "",
                   int64_t virtualStages = 0, const std::string &placement = "") {
  Pins pins;
  pins.mesh = *parseMesh(mesh);
  pins.schedule = schedule;
  if (virtualStages > 0)
    pins.virtualStages = virtualStages;
  if (!placement.empty())
    pins.placement = placement;
  pins.recompute = "none";
  Job job = jobFor(8, 64);
  job.modelPath = "../models/chain.onnx";
  job.sequence = 16;
  Result<SearchAnswer> answer = search(makeChain({8}), job, smallCluster(), pins);
  EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
  return answer ? answer->plan : Plan();
}

} // namespace tbc::planner::test

#endif // TBC_TESTS_PLANNER_VIEW_PLANS_H

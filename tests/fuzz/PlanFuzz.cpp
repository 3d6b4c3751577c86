//===- PlanFuzz.cpp - Any bytes as a plan.json ----------------------------===//

#include "tests/fuzz/Fuzz.h"

#include "planner/plan/PlanFile.h"
#include "planner/report/Summary.h"

using namespace tbc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  Result<planner::Plan> plan = planner::readPlan(text, "plan.json");
  if (!plan) {
    fuzz::require(plan.error().code == ErrorCode::Usage, "a bad plan is a usage error");
    fuzz::require(plan.error().message.rfind("plan.json: ", 0) == 0, "the message names the file");
    return 0;
  }
  fuzz::require(!planner::summarize(*plan).empty(), "a plan can be put in words");
  std::string written = planner::writePlan(*plan);
  Result<planner::Plan> again = planner::readPlan(written, "plan.json");
  fuzz::require(bool(again), "a plan that was written can be read");
  fuzz::require(planner::writePlan(*again) == written, "it is the same bytes again");
  return 0;
}

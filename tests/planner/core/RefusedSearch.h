//===- RefusedSearch.h - Searches that end in an error ---------------------===//

#ifndef TBC_TESTS_PLANNER_CORE_REFUSEDSEARCH_H
#define TBC_TESTS_PLANNER_CORE_REFUSEDSEARCH_H

#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"

#include <gtest/gtest.h>

#include <string>

namespace tbc::planner::test {

/// Returns the message of a search on smallCluster() that must fail with `code`; "no error" if it
/// finds a plan.
inline std::string errorOf(const reshard::Graph &graph, const Job &job, const Pins &pins,
                           ErrorCode code = ErrorCode::Usage) {
  Result<SearchAnswer> answer = search(graph, job, smallCluster(), pins);
  if (answer)
    return "no error";
  EXPECT_EQ(int(answer.error().code), int(code)) << answer.error().message;
  return answer.error().message;
}

} // namespace tbc::planner::test

#endif // TBC_TESTS_PLANNER_CORE_REFUSEDSEARCH_H

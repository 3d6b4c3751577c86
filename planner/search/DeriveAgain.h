//===- DeriveAgain.h - The derived keys of an edited plan -------------------===//

#ifndef TBC_PLANNER_SEARCH_DERIVEAGAIN_H
#define TBC_PLANNER_SEARCH_DERIVEAGAIN_H

#include "planner/plan/Plan.h"
#include "planner/reshard/Graph.h"
#include "runtime/abi/Status.h"

namespace tbc::planner {

/// Writes the derived keys of `plan` from its decisions: predictions, layout, layers, names of
/// stages. A lower bound above the new time is dropped.
///
/// If decisions were edited, texts of the search are about another plan:
/// - a reason gets the plan's value; it says whether that was edited or is as before;
/// - runners-up and the main limit of the step are compared with the new prediction;
/// - the sample of the search is dropped, and the warnings are those of the new plan.
///
/// Errors: Usage, as of predict().
Status deriveAgain(const reshard::Graph &graph, Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_DERIVEAGAIN_H

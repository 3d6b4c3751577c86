//===- StageBytes.h - Memory of the stages of a candidate -----------------===//

#ifndef TBC_PLANNER_SEARCH_STAGEBYTES_H
#define TBC_PLANNER_SEARCH_STAGEBYTES_H

#include "planner/search/CostTables.h"

namespace tbc::planner {

/// Returns the peak bytes of stage `stage` of a candidate with known cuts. `mode` is of stage 0,
/// because stages of one mesh have the same group sizes.
double heldBytes(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                 const DataMode &mode, int stage);

/// Returns `bytes` of a stage, scaled from its own memory limit to the largest limit of the
/// problem. Example: 30 GB on a stage with a limit of 40 GB count as 60 GB of 80 GB.
double scaledBytes(const CostTables &costs, const Candidate &candidate, int stage, double bytes);

/// Returns heldBytes(), scaled.
double stageBytes(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                  const DataMode &mode, int stage);

/// Whether the stage fits in its memory limit.
bool fits(const CostTables &costs, const Candidate &candidate, const Mix &mix, const DataMode &mode,
          int stage);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_STAGEBYTES_H

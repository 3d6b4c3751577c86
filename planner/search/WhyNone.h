//===- WhyNone.h - Why a search has no candidates -------------------------===//

#ifndef TBC_PLANNER_SEARCH_WHYNONE_H
#define TBC_PLANNER_SEARCH_WHYNONE_H

#include "planner/search/Searcher.h"

#include <string>

namespace tbc::planner {

/// Returns the reasons against the sizes of axes that conditions ask for, or "". Example: "cp=3
/// does not divide 8 devices".
std::string whyNoSizes(const SearchProblem &problem, const Pins &pins);

/// Returns the reason for a space without candidates.
Error whyNone(const Searcher &searcher, const Pins &pins);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_WHYNONE_H

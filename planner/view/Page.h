//===- Page.h - The report as one HTML file --------------------------------===//

#ifndef TBC_PLANNER_VIEW_PAGE_H
#define TBC_PLANNER_VIEW_PAGE_H

#include "planner/view/PlanView.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the page of `views`, at least one: HTML with its style, its script and the data of
/// toJson(views) in it. It requests no other file. Text from plans is data and never HTML: every
/// "<" in the data is written as an escape of JSON.
std::string reportPage(const std::vector<PlanView> &views);

/// Returns `text` for HTML. Example: "a < b & c" gives "a &lt; b &amp; c".
std::string escapeHtml(const std::string &text);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_PAGE_H

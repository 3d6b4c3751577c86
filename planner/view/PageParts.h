//===- PageParts.h - The files of planner/view/page, built in --------------===//

#ifndef TBC_PLANNER_VIEW_PAGEPARTS_H
#define TBC_PLANNER_VIEW_PAGEPARTS_H

#include <string>

namespace tbc::planner {

const std::string &pageHtml();
const std::string &pageStyle();
/// The scripts, in the order of the names of their files.
const std::string &pageScript();

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_PAGEPARTS_H

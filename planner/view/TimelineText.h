//===- TimelineText.h - The predicted step as lines of text ------------------===//

#ifndef TBC_PLANNER_VIEW_TIMELINETEXT_H
#define TBC_PLANNER_VIEW_TIMELINETEXT_H

#include "planner/report/Report.h"
#include "planner/view/Timeline.h"

#include <string>

namespace tbc::planner {

/// Returns a line per stage of at most `width` columns, which is at least 40. A column shows the
/// activity that takes most of its time: F, B, W and U for forward, backward, wgrad and update,
/// small letters for odd micro-batches, "~" for exposed communication and copies, "." for idle
/// time. Up to 4 stages have lines for their other threads too: "=" where
/// such a thread is busy most of a column, "-" a part of it.
///
/// Example: two stages with two micro-batches, 40 columns:
///
///   stage 0  FFfff....BBBbbbU
///   stage 1  ...FFFBBBfffbbbU
std::string timelineText(const StepTimeline &timeline, int width);

/// Returns the seconds of each stage on its compute thread, and its most memory.
Report timelineReport(const StepTimeline &timeline);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_TIMELINETEXT_H

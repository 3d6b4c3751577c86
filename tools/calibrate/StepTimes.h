//===- StepTimes.h - Step times of a log -----------------------------------===//
//
// Plain C++. Reads the log of `tbc run --log`, or a CSV of step times.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_CALIBRATE_STEPTIMES_H
#define TBC_TOOLS_CALIBRATE_STEPTIMES_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::calibrate {

/// Whether `text` is a Chrome trace: one JSON object, not one in each line.
bool isTrace(const std::string &text);

/// Returns the seconds of the steps in `text`, without the first one if there are several: it warms
/// up. `source` names the text in messages.
///
/// - JSON lines: the key "seconds" of lines with "step", without evaluations.
/// - CSV with a header: the column seconds, step_seconds or step_time.
/// - Lines of one number each.
///
/// Errors: Usage, with the line, for other text, and for times that are not positive.
/// Example: "seconds\n9.0\n1.5\n1.4\n" gives 1.5 and 1.4.
Result<std::vector<double>> readStepTimes(const std::string &text, const std::string &source);

} // namespace tbc::calibrate

#endif // TBC_TOOLS_CALIBRATE_STEPTIMES_H

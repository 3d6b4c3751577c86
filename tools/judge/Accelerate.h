//===- Accelerate.h - Configurations of Accelerate -------------------------------------===//

#ifndef TBC_TOOLS_JUDGE_ACCELERATE_H
#define TBC_TOOLS_JUDGE_ACCELERATE_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Reads the YAML of accelerate 1.15. What cannot run is in the problems of the result.
/// Errors: Usage for text of another form.
Result<Setup> readAccelerate(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_ACCELERATE_H

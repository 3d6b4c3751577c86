//===- Torchtitan.h - Configurations of Torchtitan -------------------------------------===//

#ifndef TBC_TOOLS_JUDGE_TORCHTITAN_H
#define TBC_TOOLS_JUDGE_TORCHTITAN_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Reads the TOML of torchtitan. What cannot run is in the problems of the result.
/// Errors: Usage for text of another form.
Result<Setup> readTorchtitan(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_TORCHTITAN_H

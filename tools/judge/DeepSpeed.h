//===- DeepSpeed.h - Configurations of DeepSpeed -------------------------------------===//

#ifndef TBC_TOOLS_JUDGE_DEEPSPEED_H
#define TBC_TOOLS_JUDGE_DEEPSPEED_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Reads the JSON of DeepSpeed 0.19. What cannot run is in the problems of the result.
/// Errors: Usage for text of another form.
Result<Setup> readDeepSpeed(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_DEEPSPEED_H

//===- Megatron.h - Configurations of Megatron -------------------------------------===//

#ifndef TBC_TOOLS_JUDGE_MEGATRON_H
#define TBC_TOOLS_JUDGE_MEGATRON_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Reads the flags of Megatron-LM, core 0.16, with torchrun before them. What cannot run is in the
/// problems of the result. Errors: Usage for text of another form.
Result<Setup> readMegatron(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_MEGATRON_H

//===- MegatronStages.h - Pipelines of Megatron -----------------------------------===//

#ifndef TBC_TOOLS_JUDGE_MEGATRONSTAGES_H
#define TBC_TOOLS_JUDGE_MEGATRONSTAGES_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Sets the schedule, the chunks of each stage and the layers of each chunk from the flags of a
/// pipeline; `setup.pp` must be set. What contradicts itself is added to the problems.
///
/// Examples for 12 layers over pp=2: `--num-layers-per-virtual-pipeline-stage 3` has 4 chunks of 3
/// layers; `--pipeline-model-parallel-layout Ett|tttt|(ttt|)*2L` has 4 chunks of 2, 4, 3 and 3.
void readStages(Setup &setup);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_MEGATRONSTAGES_H

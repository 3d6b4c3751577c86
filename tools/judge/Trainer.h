//===- Trainer.h - Configurations of Trainer -------------------------------------===//

#ifndef TBC_TOOLS_JUDGE_TRAINER_H
#define TBC_TOOLS_JUDGE_TRAINER_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// Reads keywords of TrainingArguments of transformers and of Lightning's Trainer. What cannot run
/// is in the problems of the result. Errors: Usage for text of another form.
Result<Setup> readTrainer(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_TRAINER_H

//===- PythonConfig.h - Configurations that are Python functions ------------===//

#ifndef TBC_TOOLS_JUDGE_PYTHONCONFIG_H
#define TBC_TOOLS_JUDGE_PYTHONCONFIG_H

#include "tools/judge/Setup.h"

namespace tbc::judge {

/// The settings of a function, nested keys joined by dots.
struct PythonSettings {
  std::vector<Entry> entries;
  /// Functions of other files that give the settings that are not assigned here.
  std::vector<std::string> elsewhere;
};

/// Returns the settings that a function of a Python file gives. Nothing is executed: calls with
/// keywords, assignments and literals are read, and anything that decides at run time is an error.
/// `source`: FILE.py:FUNCTION, or FILE.py if one function is called by no other.
/// Example: `return Trainer.Config(training=TrainingConfig(seq_len=8192))` gives
/// training.seq_len = 8192; `config.activation_checkpoint = FullAC.Config()` gives
/// activation_checkpoint = FullAC.Config().
/// Errors: Usage, with the file's line or the functions to choose from.
Result<PythonSettings> pythonSettings(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_PYTHONCONFIG_H

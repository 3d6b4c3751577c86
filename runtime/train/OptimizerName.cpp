//===- OptimizerName.cpp - The optimizer of a Program ----------------------===//

#include "runtime/train/OptimizerName.h"

#include <algorithm>
#include <utility>

namespace tbc::train {

std::string optimizerName(const program::Program &program) {
  // Muon and row-wise Adagrad have other optimizers beside them, so theirs come first.
  static constexpr std::pair<const char *, const char *> rules[] = {
      {"muon_momentum", "muon"},
      {"divide_by_root", "rowwise-adagrad"},
      {"adagrad", "adagrad"},
      {"factored_moment", "adafactor"},
      {"adam", "adam"},
      {"adamw", "adam"},
      {"sgd_momentum", "sgd-momentum"},
      {"sgd", "sgd"},
  };
  for (const auto &[op, name] : rules)
    for (const program::Stage &stage : program.stages) {
      const std::vector<program::Instruction> &all = stage.update.instructions;
      auto isRule = [rule = op](const program::Instruction &instruction) {
        return instruction.kind == program::InstructionKind::Kernel && instruction.op == rule;
      };
      if (std::any_of(all.begin(), all.end(), isRule))
        return name;
    }
  return "";
}

} // namespace tbc::train

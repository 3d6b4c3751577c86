//===- GradientNorm.h - The norm of all gradients of a step ---------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_GRADIENTNORM_H
#define TBC_RUNTIME_TRAIN_GRADIENTNORM_H

#include "runtime/exec/Observer.h"

#include <optional>

namespace tbc::train {

/// Keeps the result of the update's op that computes the norm of all gradients.
class GradientNorm : public runtime::Observer {
public:
  /// `op`: its id; empty if the step does not compute it.
  explicit GradientNorm(std::string op) : op(std::move(op)) {}
  Status executed(const runtime::Executed &executed) override;
  bool looksAtOnce() const override { return false; }
  bool looksAt(schedule::Action::Kind kind,
               const program::Instruction &instruction) const override {
    return !op.empty() && kind == schedule::Action::Kind::Update && instruction.id == op;
  }
  /// The norm of the last step; empty in residues.
  std::optional<double> value() const { return last; }

private:
  const std::string op;
  std::optional<double> last;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_GRADIENTNORM_H

//===- SerialTrainer.h - The training step, serially -----------------------===//
//
// The serial program is the reference for every parallel one.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_SERIALTRAINER_H
#define TBC_IR_SERIALTRAINER_H

#include "runtime/kernels/Kernel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LLVM.h"

#include <map>
#include <string>

namespace tbc {

/// Runs @train on every micro-batch and then @update, with the reference kernels.
///
/// Parameters and states must be set before the first step. Optimizer states start at their
/// tbc.initial or 0. Master copies start at their parameter's value, before rounding if it is given
/// in f32.
class SerialTrainer {
public:
  /// By argument name.
  using Tensors = std::map<std::string, kernels::Tensor>;

  SerialTrainer(mlir::ModuleOp module, const kernels::KernelContext &context);

  /// Sets a parameter, a state or the loss scale. Converts a float value of another width; the
  /// master copy, if there is one, takes the value as given. Errors: a name unknown to @train; a
  /// value of another shape.
  mlir::LogicalResult set(const std::string &name, const kernels::Tensor &value);

  /// Executes one step. It adds up losses, counts and gradients of the micro-batches (inputs and
  /// labels by name), hands states from one to the next, and then updates the parameters. Returns
  /// the loss of the parameters before the update. Errors: a missing value; an op that cannot be
  /// evaluated.
  mlir::FailureOr<double> step(llvm::ArrayRef<Tensors> microBatches, double learningRate);

  /// Parameters, states and optimizer states as they are now.
  const Tensors &values() const { return current; }
  /// The gradients of the last step, by parameter.
  const Tensors &gradients() const { return sums; }
  /// The loss of the last step: the mean over the counted elements.
  const kernels::Tensor &loss() const { return lossSum; }

private:
  /// Returns the value of an argument of role `opt_state`.
  kernels::Tensor optimizerState(mlir::func::FuncOp function, unsigned argument);
  mlir::LogicalResult runMicroBatch(const Tensors &batch);
  mlir::LogicalResult update(double learningRate);

  mlir::ModuleOp module;
  kernels::KernelContext context;
  kernels::Arith arith; // of the context
  Tensors current;
  Tensors sums;
  kernels::Tensor lossSum, countSum;
};

} // namespace tbc

#endif // TBC_IR_SERIALTRAINER_H

//===- StepFixture.h - Small models made into training steps ---------------===//

#ifndef TBC_TESTS_PASSES_STEPFIXTURE_H
#define TBC_TESTS_PASSES_STEPFIXTURE_H

#include "ir/Roles.h"
#include "ir/SerialTrainer.h"
#include "tests/ir/ParsedModule.h"

#include <string>
#include <vector>

namespace tbc {

/// Two layers with a gelu and a layer norm between them, a tied scale and an unused parameter: x[4,
/// 3] -> logits[4, 5]. It has one op of every kind with a treatment of its own in autodiff.
extern const char *const kMlp;

/// x[4, 3, 2] through a convolution and a batch norm to logits[4, 2].
extern const char *const kConvNet;

/// Runs the passes from @model to @train and @update; fails the test on error.
void buildStep(ParsedModule &module, int64_t samples = 0);

/// Values for the arguments of @train, the same in every arithmetic: floats in +-[0.2, 1.2],
/// running variances positive, labels 0 or 1.
std::vector<kernels::Tensor> trainInputs(ParsedModule &module, kernels::Arith arith);

/// The results of function `name` on `inputs`; fails the test on error.
std::vector<kernels::Tensor> evaluate(ParsedModule &module, llvm::StringRef name,
                                      const std::vector<kernels::Tensor> &inputs,
                                      kernels::Arith arith);

/// Returns the number of the argument or result of `function` with this role and name. Fails the
/// test if it is missing.
unsigned argument(mlir::func::FuncOp function, TensorRole role, llvm::StringRef name);
unsigned result(mlir::func::FuncOp function, TensorRole role, llvm::StringRef name);

/// The names of the results with this role, in order.
std::vector<std::string> resultNames(mlir::func::FuncOp function, TensorRole role);

/// Returns the op with this id. Fails the test if it is missing.
mlir::Operation *findOp(mlir::func::FuncOp function, llvm::StringRef id);

/// The ids of the ops of `function`, in order.
std::vector<std::string> idsOf(mlir::func::FuncOp function);

} // namespace tbc

#endif // TBC_TESTS_PASSES_STEPFIXTURE_H

//===- CudaTraining.h - Training a small program on fake GPUs ---------------===//

#ifndef TBC_TESTS_CODEGEN_CUDATRAINING_H
#define TBC_TESTS_CODEGEN_CUDATRAINING_H

#include "runtime/exec/Executor.h"
#include "tests/runtime/support/MlpProgram.h"

#include <functional>

namespace tbc::test {

/// Per rank: its parts of all tensors after training, and its loss.
using Outcome = std::vector<Result<std::vector<kernels::Tensor>>>;

/// Returns the inputs of a step, the same for the same step.
runtime::StepInputs stepInputs(const program::MlpOptions &o, int step,
                               kernels::Arith arith = kernels::Arith::Native);

/// Returns the initial value of a tensor.
kernels::Tensor initialValue(const program::MlpOptions &o, const std::string &name,
                             kernels::Arith arith = kernels::Arith::Native);

/// Loads, trains `numSteps` steps and returns the rank's tensors and loss.
Result<std::vector<kernels::Tensor>>
trainRank(const program::Program &program, const program::MlpOptions &o, int64_t rank,
          comm::Communicator &communicator, const runtime::MachineMaker &machine, int numSteps = 2,
          kernels::Arith arith = kernels::Arith::Native);

/// Trains on all ranks. Each rank is a thread; they exchange tensors within this process.
Outcome trainAll(const program::Program &program, const program::MlpOptions &o,
                 const std::function<Result<runtime::MachineMaker>(int64_t rank)> &machineOf,
                 int numSteps = 2, kernels::Arith arith = kernels::Arith::Native);
/// Trains on the reference machine.
Outcome trainReference(const program::Program &program, const program::MlpOptions &o,
                       int numSteps = 2, kernels::Arith arith = kernels::Arith::Native);

/// Expects equal bits.
void expectEqual(const Outcome &gpu, const Outcome &reference);

} // namespace tbc::test

#endif // TBC_TESTS_CODEGEN_CUDATRAINING_H

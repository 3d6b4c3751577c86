//===- SimulatedCluster.h - All ranks of a Program in one process ----------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_SIMULATEDCLUSTER_H
#define TBC_RUNTIME_EXEC_SIMULATEDCLUSTER_H

#include "runtime/exec/Executor.h"

#include <chrono>
#include <memory>

namespace tbc::runtime {

/// Executor::runStep or Executor::runForward.
using ExecutorCall = Status (Executor::*)(comm::Communicator &, const StepInputs &);

/// Returns the machine that executes the kernels of a rank.
using RankMachines = std::function<Result<MachineMaker>(int64_t rank)>;

struct ClusterOptions {
  kernels::KernelContext context;
  /// The longest time to wait for another rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Executes the kernels of all ranks, unless `machineOf` is set.
  MachineMaker machine = makeReferenceMachine;
  RankMachines machineOf = {};
};

/// Runs every rank of a Program as a thread. Results do not depend on the timing of the threads.
class SimulatedCluster {
public:
  /// Errors: the program is not well formed, or has an unknown kernel; those of the machines.
  static Result<SimulatedCluster> create(program::Program program, ClusterOptions options = {});

  /// Loads the ranks' pieces of parameters, states and optimizer states.
  Status load(const TensorProvider &provider);

  /// Runs one step and returns its loss (without value if no stage has one). Errors: a rank failed
  /// or hangs; ranks disagree on the loss (VerificationFailed).
  Result<kernels::Tensor> step(const StepInputs &inputs);

  /// Returns the loss of such a step without updating parameters (Executor::runForward). Errors: as
  /// for `step`.
  Result<kernels::Tensor> evaluate(const StepInputs &inputs);

  /// Returns a parameter, state, optimizer state or gradient (of the last step) as a global tensor.
  /// Partial sums are added up. Errors: replicas are not bitwise equal (VerificationFailed); no
  /// such tensor.
  Result<kernels::Tensor> gather(const std::string &name) const;

  const program::Program &program() const { return *code; }
  int64_t numRanks() const { return static_cast<int64_t>(executors.size()); }
  const Executor &executor(int64_t rank) const { return executors[rank]; }

private:
  SimulatedCluster() = default;
  Result<kernels::Tensor> onAllRanks(ExecutorCall call, const StepInputs &inputs);

  std::unique_ptr<const program::Program> code; // executors point to it
  ClusterOptions options;
  std::vector<Executor> executors;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_SIMULATEDCLUSTER_H

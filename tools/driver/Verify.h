//===- Verify.h - Parallel against serial ------------------------------------===//

#ifndef TBC_TOOLS_DRIVER_VERIFY_H
#define TBC_TOOLS_DRIVER_VERIFY_H

#include "runtime/exec/SimulatedCluster.h"
#include "runtime/kernels/Kernel.h"
#include "tools/driver/Compile.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::driver {

/// What a run computed, by name: "loss 1" (per step), gradients of the last step ("NAME.grad"), and
/// parameters, states and optimizer states after the last step.
using RunRecord = std::map<std::string, kernels::Tensor>;

/// What a run is fed: initial tensors by name, and per step and micro-batch the inputs by name,
/// whole.
struct RunData {
  std::map<std::string, kernels::Tensor> initial;
  std::vector<std::vector<std::map<std::string, kernels::Tensor>>> steps;
  double learningRate = 1e-3;
  /// Where a dynamic loss scale starts, if not where the step says.
  std::optional<double> lossScale;
};

/// Seeded inputs for `steps` steps of `plan`; weights from the model's file where it has them, else
/// seeded too. Integer inputs stay within the tables they index, labels within the classes.
Result<RunData> makeRunData(TrainingStep &step, const planner::Plan &plan, int steps,
                            kernels::Arith arith, uint64_t seed);

/// Runs the unpartitioned step by the interpreter, with the plan's batch and accumulation.
Result<RunRecord> runSerial(TrainingStep &step, const planner::Plan &plan, const RunData &data,
                            const kernels::KernelContext &context);

/// Runs all ranks of the Program in this process, on reference machines unless others are given.
Result<RunRecord> runParallel(const program::Program &program, const RunData &data,
                              const kernels::KernelContext &context,
                              const runtime::RankMachines &machineOf = {});

/// An element of a gradient that counts as not finite in one run in residues: the residue that the
/// first step of that run makes of it is the one that KernelContext::notFinite names.
struct PlantedOverflow {
  std::string parameter;
  int64_t element = 0;
  kernels::KernelContext context;
};

/// Picks an element by `seed`, of the gradient of `parameter` if that is not empty. Errors: a
/// gradient of zeros.
Result<PlantedOverflow> plantOverflow(TrainingStep &step, const planner::Plan &plan,
                                      const RunData &data, uint64_t seed,
                                      const std::string &parameter = "");

/// How a tensor of the parallel run compares.
struct Comparison {
  std::string name;
  bool equal = false;
  double error = 0; // float runs: largest |parallel - f64|; of second moments, of their roots
  double bound = 0; // of compareFloats
};

/// Bit by bit; in names' order.
std::vector<Comparison> compareExactly(const RunRecord &serial, const RunRecord &parallel);
/// Against f64, within the bound of docs/design.md section 4: 4 x the serial program's largest
/// error, + one ulp of the tensor's largest magnitude, + 2^-24 of the largest magnitude among all
/// tensors of its kind where that kind is gradients or moments. Second moments are compared by
/// their roots. `program` says which tensors are which. `growth` times that for kernels whose
/// rounding errors may be so much larger.
std::vector<Comparison> compareFloats(const program::Program &program, const RunRecord &reference,
                                      const std::vector<RunRecord> &serial,
                                      const std::vector<RunRecord> &references,
                                      const RunRecord &parallel, double growth = 1);

struct VerifyOptions {
  int steps = 2;
  bool floats = true;
  uint64_t seed = 1;
  /// What executes kernels in a run; the floats are then computed by them as well. May be empty.
  runtime::RankMachines machines = {};
};

struct VerifyReport {
  std::vector<Comparison> residues, floats;
  std::vector<Comparison> native; // floats by VerifyOptions::machines
  /// Residues again, where the loss is scaled: an overflow is planted in the first step.
  std::vector<Comparison> overflow;
  std::string overflowPlace;       // "NAME.grad[element]"
  std::optional<double> lossScale; // at which the floats ran, if not where the step starts
  int64_t ranks = 0;
  int64_t collectives = 0; // executions per step and rank of stage 0, for the reader
  bool passed() const;
};

/// The whole check of one plan: residues bit for bit, with an overflow too where the loss is
/// scaled, then floats. Floats run at a loss scale at which the serial program does not overflow.
/// Errors: there is none; what is compared is not finite.
Result<VerifyReport> verifyPlan(TrainingStep &step, const planner::Plan &plan,
                                const VerifyOptions &options);

/// The same of a Program that is there already, compiled from the plan.
Result<VerifyReport> verifyProgram(TrainingStep &step, const planner::Plan &plan,
                                   const program::Program &program, const VerifyOptions &options);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_VERIFY_H

//===- Verify.h - Compare parallel with serial runs --------------------------===//

#ifndef TBC_TOOLS_DRIVER_VERIFY_H
#define TBC_TOOLS_DRIVER_VERIFY_H

#include "runtime/exec/SimulatedCluster.h"
#include "runtime/kernels/Kernel.h"
#include "tools/driver/Compile.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::driver {

/// The results of a run, by name: "loss 1" (per step), gradients of the last step ("NAME.grad"),
/// and parameters, states and optimizer states after the last step.
using RunRecord = std::map<std::string, kernels::Tensor>;

/// The data of a run: initial tensors by name, and unsharded inputs by name per step and
/// micro-batch.
struct RunData {
  std::map<std::string, kernels::Tensor> initial;
  std::vector<std::vector<std::map<std::string, kernels::Tensor>>> steps;
  double learningRate = 1e-3;
  /// The initial dynamic loss scale, if it differs from the step's.
  std::optional<double> lossScale;
};

/// The range of float inputs, from `low` to below `high`.
struct InputRange {
  double low = -1, high = 1;
  /// For a model that takes logarithms or roots of its inputs.
  static InputRange positive() { return {0.5, 1.5}; }
};

/// Returns seeded inputs for `steps` steps of `plan`. Weights come from the model's file if it has
/// them, else they are seeded too. Integer inputs are valid indices of their tables, labels valid
/// classes.
Result<RunData> makeRunData(TrainingStep &step, const planner::Plan &plan, int steps,
                            kernels::Arith arith, uint64_t seed, const InputRange &range = {});

/// Moves elements of the parameters up or down by about an ulp, at random by `number`, so that all
/// roundings of a run are others and its conditioning is the same.
void moveParameters(RunData &data, TrainingStep &step, kernels::Arith arith, uint64_t number);

/// Runs the unpartitioned step in the interpreter, with the plan's batch and accumulation.
Result<RunRecord> runSerial(TrainingStep &step, const planner::Plan &plan, const RunData &data,
                            const kernels::KernelContext &context);

/// Serial runs of steps on seeded data, each made once. They depend on a plan through its batch and
/// the samples of a micro-batch alone, so plans of the same step share them.
class SerialRuns {
public:
  struct Setting {
    int steps = 1;
    kernels::Arith arith = kernels::Arith::Native;
    uint64_t seed = 1;
    std::optional<double> lossScale = std::nullopt;
    InputRange range = {};
    /// Of moveParameters(); 0 leaves the data as they are.
    uint64_t neighbour = 0;
  };
  /// Returns runSerial() on the data of makeRunData().
  Result<RunRecord> run(TrainingStep &step, const planner::Plan &plan, const Setting &setting);

private:
  /// Hashes of model and step; batch and samples of a micro-batch; the setting.
  using Key = std::tuple<std::string, std::string, int64_t, int64_t, int, kernels::Arith, uint64_t,
                         std::optional<double>, double, double, uint64_t>;
  std::map<Key, RunRecord> made;
};

/// Runs all ranks of the Program in this process, by default on reference backends.
Result<RunRecord> runParallel(const program::Program &program, const RunData &data,
                              const kernels::KernelContext &context,
                              const runtime::RankMachines &machineOf = {});

/// A gradient element that counts as not finite in a run in residues. `KernelContext::notFinite`
/// names its residue in the first step.
struct PlantedOverflow {
  std::string parameter;
  int64_t element = 0;
  kernels::KernelContext context;
};

/// Picks an element by `seed`; from the gradient of `parameter` if that is not empty. Errors: a
/// gradient of zeros.
Result<PlantedOverflow> plantOverflow(TrainingStep &step, const planner::Plan &plan,
                                      const RunData &data, uint64_t seed,
                                      const std::string &parameter = "");

/// The comparison of one tensor of the parallel run.
struct Comparison {
  std::string name;
  bool equal = false;
  double error = 0; // float runs: largest |parallel - f64|; second moments: of their roots
  double bound = 0; // of compareFloats
};

/// Compares bit by bit; sorted by name.
std::vector<Comparison> compareExactly(const RunRecord &serial, const RunRecord &parallel);
/// Compares with f64, within the bound of docs/design.md section 4. The bound is the sum of:
///   - 4 x the serial program's largest error;
///   - one ulp of the tensor's largest magnitude;
///   - for gradients and moments, 2^-24 of the largest magnitude among all tensors of the kind.
///
/// Second moments are compared by their roots. `program` tells the kinds of tensors. `growth`
/// multiplies the bound, for kernels with larger rounding errors.
std::vector<Comparison> compareFloats(const program::Program &program, const RunRecord &reference,
                                      const std::vector<RunRecord> &serial,
                                      const std::vector<RunRecord> &references,
                                      const RunRecord &parallel, double growth = 1);

struct VerifyOptions {
  int steps = 2;
  bool floats = true;
  uint64_t seed = 1;
  /// The backends of a run; if not empty, they also compute the floats.
  runtime::RankMachines machines = {};
  /// Serial runs to share with other plans, if not null. For one thread at a time.
  std::shared_ptr<SerialRuns> serial = nullptr;
};

struct VerifyReport {
  std::vector<Comparison> residues, floats;
  std::vector<Comparison> native; // floats by VerifyOptions::machines
  /// Residues with an overflow planted in the first step, if the loss is scaled.
  std::vector<Comparison> overflow;
  std::string overflowPlace;       // "NAME.grad[element]"
  std::optional<double> lossScale; // of the floats, if not the step's
  std::optional<InputRange> range; // of the floats' inputs, if not the usual one
  int64_t ranks = 0;
  int64_t collectives = 0; // executions per step and rank of stage 0, for the report
  bool passed() const;
};

/// Checks one plan: residues bit for bit, also with an overflow if the loss is scaled, then floats.
/// Floats run at a loss scale, and if need be on positive inputs, without overflow in the serial
/// program. Errors: there is no such scale, or a compared value is not finite.
Result<VerifyReport> verifyPlan(TrainingStep &step, const planner::Plan &plan,
                                const VerifyOptions &options);

/// The same for a Program already compiled from the plan.
Result<VerifyReport> verifyProgram(TrainingStep &step, const planner::Plan &plan,
                                   const program::Program &program, const VerifyOptions &options);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_VERIFY_H

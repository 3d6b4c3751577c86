//===- Verify.cpp - Compare parallel with serial runs -------------------------===//

#include "tools/driver/Verify.h"

#include "frontend/onnx/NotFinite.h"
#include "passes/optimizer/LossScale.h"
#include "runtime/exec/SimulatedCluster.h"
#include "tools/driver/StepSettings.h"

#include <algorithm>
#include <cmath>

namespace tbc::driver {

Result<RunRecord> runParallel(const program::Program &program, const RunData &data,
                              const kernels::KernelContext &context,
                              const runtime::RankMachines &machineOf) {
  runtime::ClusterOptions options;
  options.context = context;
  options.machineOf = machineOf;
  program::Program started = program;
  if (int scale = started.tensorIndex(kLossScaleName.str()); data.lossScale && scale >= 0)
    started.tensors[scale].fill = *data.lossScale;
  auto cluster = runtime::SimulatedCluster::create(std::move(started), options);
  if (!cluster)
    return cluster.error();
  Status loaded = cluster->load([&](const std::string &name) { return data.initial.at(name); });
  if (!loaded)
    return loaded.error();
  RunRecord record;
  for (size_t s = 0; s < data.steps.size(); ++s) {
    runtime::StepInputs inputs;
    inputs.microBatches = data.steps[s];
    inputs.learningRate = data.learningRate;
    auto loss = cluster->step(inputs);
    if (!loss)
      return loss.error();
    record["loss " + std::to_string(s + 1)] = *loss;
  }
  for (const program::GlobalTensor &tensor : program.tensors) {
    if (tensor.role == program::Role::Input)
      continue;
    auto value = cluster->gather(tensor.name);
    if (!value)
      return value.error();
    record[tensor.name] = *value;
  }
  return record;
}

std::vector<Comparison> compareExactly(const RunRecord &serial, const RunRecord &parallel) {
  std::vector<Comparison> result;
  for (const auto &[name, value] : serial) {
    Comparison line;
    line.name = name;
    auto it = parallel.find(name);
    line.equal = it != parallel.end() && kernels::bitwiseEqual(value, it->second);
    result.push_back(line);
  }
  for (const auto &[name, value] : parallel)
    if (!serial.count(name)) {
      Comparison line;
      line.name = name;
      result.push_back(line);
    }
  return result;
}

namespace {

/// How a tensor takes part in the comparison of floats.
enum class Kind { Gradient, FirstMoment, SecondMoment, Other };

bool endsWith(const std::string &name, const std::string &suffix) {
  return name.size() > suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// "P.m" and "P.v" are the moments of parameter P (`buildUpdateFunction`), and those of
/// `factoredStates` and the sums of Adagrad its second moments.
Kind kindOf(const program::Program &program, const std::string &name) {
  int index = program.tensorIndex(name);
  program::Role role = index < 0 ? program::Role::Loss : program.tensors[size_t(index)].role;
  if (role == program::Role::Gradient)
    return Kind::Gradient;
  if (role == program::Role::OptimizerState && endsWith(name, ".m"))
    return Kind::FirstMoment;
  for (const char *suffix : {".v", ".row_var", ".col_var", ".variance", ".sum", ".row_sum"})
    if (role == program::Role::OptimizerState && endsWith(name, suffix))
      return Kind::SecondMoment;
  return Kind::Other;
}

/// Returns the compared values of a tensor. A second moment is compared by its root: the moment is
/// a weighted sum of squares, so its root is a norm. The error of a norm is at most that of the
/// gradients, however small they are.
std::vector<double> comparedOf(Kind kind, const kernels::Tensor &tensor) {
  std::vector<double> values = tensor.toDoubles();
  if (kind == Kind::SecondMoment)
    for (double &value : values)
      value = std::sqrt(value);
  return values;
}

/// Returns the largest |x - y|; infinite if the sizes differ or a value is not finite.
double largestDifference(const std::vector<double> &x, const std::vector<double> &y) {
  if (x.size() != y.size())
    return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double difference = std::abs(x[i] - y[i]);
    if (!std::isfinite(difference))
      return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

double largestMagnitude(const std::vector<double> &values) {
  double largest = 0;
  for (double value : values)
    largest = std::max(largest, std::abs(value));
  return largest;
}

/// Returns one ulp of `magnitude` in f32.
double ulpOf(double magnitude) {
  auto number = float(magnitude);
  return double(std::nextafter(number, INFINITY)) - double(number);
}

} // namespace

std::vector<Comparison> compareFloats(const program::Program &program, const RunRecord &reference,
                                      const std::vector<RunRecord> &serial,
                                      const std::vector<RunRecord> &references,
                                      const RunRecord &parallel, double growth) {
  constexpr double halfUlpOfOne = 0x1p-24;
  std::map<Kind, double> largestOfKind;
  for (const auto &[name, exact] : reference) {
    Kind kind = kindOf(program, name);
    double &largest = largestOfKind[kind];
    if (kind != Kind::Other)
      largest = std::max(largest, largestMagnitude(comparedOf(kind, exact)));
  }
  std::vector<Comparison> result;
  for (const auto &[name, tensor] : reference) {
    Comparison line;
    line.name = name;
    Kind kind = kindOf(program, name);
    std::vector<double> exact = comparedOf(kind, tensor);
    double serialError = 0;
    for (size_t seed = 0; seed < serial.size(); ++seed)
      serialError =
          std::max(serialError, largestDifference(comparedOf(kind, serial[seed].at(name)),
                                                  comparedOf(kind, references[seed].at(name))));
    line.bound = growth * (4 * serialError + ulpOf(largestMagnitude(exact)) +
                           halfUlpOfOne * largestOfKind[kind]);
    auto it = parallel.find(name);
    line.error =
        it == parallel.end() ? INFINITY : largestDifference(comparedOf(kind, it->second), exact);
    line.equal = line.error <= line.bound;
    result.push_back(line);
  }
  return result;
}

static bool allEqual(const std::vector<Comparison> &lines) {
  return std::all_of(lines.begin(), lines.end(), [](const Comparison &line) { return line.equal; });
}

bool VerifyReport::passed() const {
  return !residues.empty() && allEqual(residues) && allEqual(overflow) && allEqual(floats) &&
         allEqual(native);
}

/// Runs one plan serially and in parallel, in one arithmetic on the same data.
static Status runBoth(TrainingStep &step, const planner::Plan &plan,
                      const program::Program &program, const VerifyOptions &options,
                      VerifyReport &report) {
  auto data = makeRunData(step, plan, options.steps, kernels::Arith::Residue61, options.seed);
  if (!data)
    return data.error();
  auto serial = options.serial->run(
      step, plan, {options.steps, kernels::Arith::Residue61, options.seed, std::nullopt, {}});
  if (!serial)
    return serial.error();
  auto parallel = runParallel(program, *data, kernels::Arith::Residue61);
  if (!parallel)
    return parallel.error();
  report.residues = compareExactly(*serial, *parallel);
  return Status::ok();
}

/// Whether the optimizer divides gradients by their own magnitude. If a true gradient is zero,
/// rounding noise then becomes a full step. No bound on the gradient's error bounds the parameter
/// or the results of a second step, so these are compared in residues only.
static bool scalesNoise(const TrainingStep &step) {
  switch (step.options.optimizer) {
  case planner::Optimizer::AdamW:
  case planner::Optimizer::Adam:
  case planner::Optimizer::Muon:
  case planner::Optimizer::Adafactor:
  case planner::Optimizer::Adagrad:
  case planner::Optimizer::RowwiseAdagrad:
    return true;
  case planner::Optimizer::SgdMomentum:
  case planner::Optimizer::Sgd:
    return false;
  }
  return false;
}

/// Drops parameters changed by such an optimizer, and their master copies.
static void keepComparable(RunRecord &record, const TrainingStep &step,
                           const program::Program &program) {
  if (!scalesNoise(step))
    return;
  for (const program::GlobalTensor &tensor : program.tensors) {
    bool isState =
        tensor.role == program::Role::OptimizerState && kindOf(program, tensor.name) == Kind::Other;
    if (tensor.role == program::Role::Parameter || isState)
      record.erase(tensor.name);
  }
}

/// The same with an overflow in the first step; all ranks must skip it.
static Status runOverflow(TrainingStep &step, const planner::Plan &plan,
                          const program::Program &program, const VerifyOptions &options,
                          VerifyReport &report) {
  auto data = makeRunData(step, plan, options.steps, kernels::Arith::Residue61, options.seed);
  if (!data)
    return data.error();
  auto planted = plantOverflow(step, plan, *data, options.seed);
  if (!planted)
    return planted.error();
  auto usual = options.serial->run(
      step, plan, {options.steps, kernels::Arith::Residue61, options.seed, std::nullopt, {}});
  auto serial = runSerial(step, plan, *data, planted->context);
  if (!usual || !serial)
    return usual ? serial.error() : usual.error();
  if (allEqual(compareExactly(*usual, *serial)))
    return Error{ErrorCode::VerificationFailed,
                 "the serial program does not notice an overflow in the gradient of \"" +
                     planted->parameter + "\""};
  auto parallel = runParallel(program, *data, planted->context);
  if (!parallel)
    return parallel.error();
  report.overflow = compareExactly(*serial, *parallel);
  report.overflowPlace = planted->parameter + ".grad[" + std::to_string(planted->element) + "]";
  return Status::ok();
}

namespace {
/// Runs of the serial program in floats and in f64, on the data of each seed and of neighbours of
/// the first.
struct FloatRuns {
  std::vector<RunRecord> native, exact;
};
} // namespace

static Result<FloatRuns> runSeeds(TrainingStep &step, const planner::Plan &plan, int numSteps,
                                  const VerifyOptions &options, std::optional<double> lossScale,
                                  const InputRange &range) {
  // The bound is the serial program's own largest error over this many inputs (docs/design.md,
  // 4.2). Those compared may be worse conditioned than all others, and one run is one draw of their
  // roundings, so their neighbours are run too.
  constexpr int numSeeds = 8, numNeighbours = 4;
  FloatRuns runs;
  for (int i = 0; i < numSeeds + numNeighbours; ++i) {
    const uint64_t seed = options.seed + (i < numSeeds ? i : 0);
    const uint64_t neighbour = i < numSeeds ? 0 : i - numSeeds + 1;
    for (auto [arith, records] : {std::pair(kernels::Arith::Native, &runs.native),
                                  std::pair(kernels::Arith::F64, &runs.exact)}) {
      auto record =
          options.serial->run(step, plan, {numSteps, arith, seed, lossScale, range, neighbour});
      if (!record)
        return record.error();
      records->push_back(std::move(*record));
    }
  }
  return runs;
}

static bool isFinite(const kernels::Tensor &tensor) {
  std::vector<double> values = tensor.toDoubles();
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

/// Returns the tensor that makes a float run incomparable with f64, or "". It is not finite, or it
/// is a loss scale changed by a skipped step.
static std::string whatOverflows(const FloatRuns &runs) {
  for (size_t seed = 0; seed < runs.native.size(); ++seed)
    for (const auto &[name, value] : runs.native[seed]) {
      bool isScale = name == kLossScaleName;
      if (!isFinite(value) ||
          (isScale && value.toDoubles() != runs.exact[seed].at(name).toDoubles()))
        return name;
    }
  return "";
}

/// Returns the serial runs at the first loss scale without overflow, halved from the step's initial
/// scale; then the same on positive inputs. Example: 65536, 32768, 16384 ...
static Result<FloatRuns> runWithoutOverflow(TrainingStep &step, const planner::Plan &plan,
                                            int numSteps, const VerifyOptions &options,
                                            VerifyReport &report) {
  LossScale scale = tbc::driver::lossScale(step.options);
  std::string name;
  for (const InputRange &range : {InputRange(), InputRange::positive()}) {
    report.lossScale.reset();
    for (double at = scale.initial;; at /= 2) {
      auto runs = runSeeds(step, plan, numSteps, options, report.lossScale, range);
      if (!runs)
        return runs.error();
      name = whatOverflows(*runs);
      if (name.empty())
        return runs;
      if (!scale.isDynamic() || at <= 1)
        break;
      report.lossScale = at / 2;
    }
    report.range = InputRange::positive();
  }
  const std::string origin = frontend::textOf(frontend::notFiniteTensors(step.model));
  return Error{ErrorCode::ModelRejected,
               "the serial program overflows on these inputs (\"" + name + "\" is not finite" +
                   (origin.empty() ? "" : "; in the model, " + origin) +
                   "), so floats cannot be compared; --residues-only leaves them out"};
}

/// Returns how much larger the rounding errors of native kernels may be. Reference kernels round a
/// sum once; native ones up to 8 sqrt(n) times for n terms (KernelCheck.h). n is at most the number
/// of elements of a value. Example: n = 10000 gives 801.
static double growthOf(const program::Program &program) {
  int64_t most = 1;
  for (const program::Stage &stage : program.stages)
    for (const kernels::TensorType &type : stage.values)
      most = std::max(most, kernels::numElements(type.shape));
  return 1 + 8 * std::sqrt(double(most));
}

static Status runFloats(TrainingStep &step, const planner::Plan &plan,
                        const program::Program &program, const VerifyOptions &options,
                        VerifyReport &report) {
  const int numSteps = scalesNoise(step) ? 1 : options.steps;
  auto runs = runWithoutOverflow(step, plan, numSteps, options, report);
  if (!runs)
    return runs.error();
  auto data = makeRunData(step, plan, numSteps, kernels::Arith::Native, options.seed,
                          report.range.value_or(InputRange()));
  if (!data)
    return data.error();
  data->lossScale = report.lossScale;
  auto parallel = runParallel(program, *data, kernels::Arith::Native);
  if (!parallel)
    return parallel.error();
  keepComparable(runs->exact[0], step, program);
  report.floats = compareFloats(program, runs->exact[0], runs->native, runs->exact, *parallel);
  if (!options.machines)
    return Status::ok();
  parallel = runParallel(program, *data, kernels::Arith::Native, options.machines);
  if (!parallel)
    return parallel.error();
  report.native = compareFloats(program, runs->exact[0], runs->native, runs->exact, *parallel,
                                growthOf(program));
  return Status::ok();
}

Result<VerifyReport> verifyPlan(TrainingStep &step, const planner::Plan &plan,
                                const VerifyOptions &options) {
  auto compiled = compilePlan(step, plan);
  if (!compiled)
    return compiled.error();
  return verifyProgram(step, plan, compiled->program, options);
}

Result<VerifyReport> verifyProgram(TrainingStep &step, const planner::Plan &plan,
                                   const program::Program &program, const VerifyOptions &asked) {
  VerifyReport report;
  VerifyOptions options = asked;
  if (!options.serial)
    options.serial = std::make_shared<SerialRuns>();
  report.ranks = program.mesh.numRanks();
  for (const reshard::CollectiveCount &line : countInstructions(program))
    if (line.stage == 0)
      report.collectives += line.count;
  if (Status status = runBoth(step, plan, program, options, report); !status)
    return status.error();
  if (lossScale(step.options).isOn())
    if (Status status = runOverflow(step, plan, program, options, report); !status)
      return status.error();
  if (options.floats)
    if (Status status = runFloats(step, plan, program, options, report); !status)
      return status.error();
  return report;
}

} // namespace tbc::driver

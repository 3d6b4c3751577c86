//===- Kernels.cpp - Measure kernels -----------------------------------------===//

#include "tools/calibrate/Calibrate.h"

#include "codegen/PlanMemory.h"
#include "runtime/exec/Executor.h"

#include <algorithm>
#include <ctime>

namespace tbc::calibrate {

using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;
using program::Role;

namespace {

/// A kernel of two operands.
struct Case {
  std::string op;
  kernels::Attrs attrs;
  TensorType lhs, rhs, result;
};

} // namespace

/// Measures a rank's work. With several threads: wall time. With one thread: CPU time, unaffected
/// by other work on the machine, divided by the rank's share of a core.
class Stopwatch {
public:
  explicit Stopwatch(const Options &options) : options(options), begin(now()) {}
  double seconds() const { return (now() - begin) / options.coreShare; }

private:
  double now() const {
    timespec time{};
    clock_gettime(options.threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }

  const Options &options;
  const double begin;
};

/// Returns a Program of one rank; its update executes the kernel `count` times.
static program::Program programOf(const Case &kernel, int count) {
  program::Program program;
  program.mesh.axes = {{"dp", 1}};
  program::Stage &stage = program.stages.emplace_back();
  for (const auto &[name, type] :
       {std::pair("a", kernel.lhs), std::pair("b", kernel.rhs), std::pair("c", kernel.result)}) {
    program::GlobalTensor tensor;
    tensor.name = name;
    tensor.role = Role::OptimizerState;
    tensor.type = type;
    tensor.piece = program::wholePiece(type.shape);
    tensor.fill = 1;
    stage.slots.push_back({name, tensor.role, int(program.tensors.size()), type});
    program.tensors.push_back(std::move(tensor));
  }
  program::Block &block = stage.update;
  for (int slot = 0; slot < 2; ++slot) {
    block.arguments.push_back({slot, slot});
    stage.values.push_back(stage.slots[size_t(slot)].type);
  }
  for (int i = 0; i < count; ++i) {
    program::Instruction instruction;
    instruction.id = kernel.op + "." + std::to_string(i);
    instruction.op = kernel.op;
    instruction.attrs = kernel.attrs;
    instruction.operands = {0, 1};
    instruction.results = {program::ValueId(stage.values.size())};
    stage.values.push_back(kernel.result);
    block.instructions.push_back(std::move(instruction));
  }
  block.results.push_back({program::ValueId(stage.values.size() - 1), 2, false});
  planMemory(program);
  return program;
}

/// Returns the shortest of several times of a step that runs the kernel `count` times.
static Result<double> secondsOf(const Options &options, comm::Communicator &communicator,
                                const Case &kernel, int count) {
  program::Program program = programOf(kernel, count);
  if (Status status = program::checkWellFormed(program); !status)
    return status.error();
  auto executor = runtime::Executor::create(program, 0, kernels::Arith::Native, options.machine);
  if (!executor)
    return executor.error();
  Status loaded = executor->loadPieces(
      [](const program::GlobalTensor &, const std::vector<int64_t> &, const TensorType &type) {
        return Result<Tensor>(Tensor::zeros(type, kernels::Arith::Native));
      });
  if (!loaded)
    return loaded.error();
  runtime::StepInputs inputs;
  inputs.microBatches.resize(1);
  constexpr int leastRuns = 3;
  const double longEnough = options.isQuick ? 0.01 : 0.2;
  double best = 1e30, total = 0;
  for (int run = 0; run < leastRuns || total < longEnough; ++run) {
    Stopwatch watch(options);
    if (Status status = executor->runStep(communicator, inputs); !status)
      return status.error();
    double seconds = watch.seconds();
    total += seconds;
    best = std::min(best, seconds);
    if (total > 2)
      break; // long enough: the overhead is negligible
  }
  return best / count;
}

static Case matmul(int64_t rows, int64_t inner, int64_t columns, DType dtype) {
  using Labels = std::vector<int64_t>;
  return {
      "einsum",
      {{"lhs_labels", Labels{0, 1}}, {"rhs_labels", Labels{1, 2}}, {"out_labels", Labels{0, 2}}},
      {dtype, {rows, inner}},
      {dtype, {inner, columns}},
      {dtype, {rows, columns}}};
}

static Case addition(int64_t elements) {
  TensorType type{DType::F32, {elements}};
  return {"add", {}, type, type, type};
}

/// STREAM's triad on three arrays too large for any cache. Source: McCalpin, "Memory bandwidth and
/// machine balance", 1995.
static double triadBytesPerSecond(const Options &options) {
  size_t count = size_t(1) << (options.isQuick ? 20 : 24);
  std::vector<float> a(count, 1), b(count, 2), c(count, 3);
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    Stopwatch watch(options);
    for (size_t i = 0; i < count; ++i)
      a[i] = b[i] + 0.5f * c[i];
    best = std::min(best, watch.seconds());
    std::swap(a, b); // keeps the compiler from dropping runs
  }
  volatile float sink = a[count / 2];
  (void)sink;
  return 3 * sizeof(float) * double(count) / best;
}

Status measureKernels(const Options &options, comm::Communicator &communicator,
                      Measurements &measurements) {
  auto time = [&](const Case &kernel, int count) -> Result<double> {
    Result<double> mine = secondsOf(options, communicator, kernel, count);
    return mine ? meanOf(communicator, *mine) : mine;
  };
  Result<double> bandwidth = meanOf(communicator, triadBytesPerSecond(options));
  if (!bandwidth)
    return bandwidth.error();
  measurements.bytesPerSecond = *bandwidth;
  Result<double> floor = time(addition(1), 200);
  if (!floor)
    return floor.error();
  measurements.kernelFloor = *floor;

  const double tooLong = options.isQuick ? 0.01 : 1;
  for (DType dtype : {DType::F32, DType::BF16})
    for (int64_t size = 16; size <= 2048; size *= 2) {
      Result<double> seconds = time(matmul(size, size, size, dtype), 2);
      if (!seconds)
        return seconds.error();
      double cubed = double(size) * double(size) * double(size);
      measurements.matmuls.push_back(
          {std::string(kernels::name(dtype)), size, 2 * cubed,
           3 * double(size) * double(size) * double(kernels::byteWidth(dtype)), *seconds});
      if (*seconds > tooLong / 8)
        break;
    }
  for (int64_t size = 256; size <= 2048; size *= 2) {
    Result<double> seconds = time(matmul(1, size, size, DType::F32), 2);
    if (!seconds)
      return seconds.error();
    measurements.rows.push_back({"f32", size, 2 * double(size) * double(size),
                                 4 * double(size) * double(size + 2), *seconds});
    if (*seconds > tooLong / 4)
      break;
  }
  for (int64_t size = 1 << 10; size <= 1 << 24; size *= 4) {
    Result<double> seconds = time(addition(size), 4);
    if (!seconds)
      return seconds.error();
    measurements.adds.push_back({"f32", size, double(size), 12 * double(size), *seconds});
    if (*seconds > tooLong / 4)
      break;
  }
  return Status::ok();
}

} // namespace tbc::calibrate

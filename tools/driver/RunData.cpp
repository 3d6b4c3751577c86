//===- RunData.cpp - Seeded inputs and initial values -----------------------===//

#include "ir/Roles.h"
#include "planner/plan/PlanApply.h"
#include "tools/driver/RunManifest.h"
#include "tools/driver/Verify.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Evaluate.h"
#include "ir/Flags.h"
#include "ir/Loss.h"
#include "ir/Movement.h"
#include "ir/Vocabulary.h"

#include "passes/random/UseDropout.h"
#include "runtime/kernels/Kernel.h"

#include "llvm/ADT/SetVector.h"

#include <numeric>
#include <optional>
#include <random>

using namespace mlir;

namespace tbc::driver {

int64_t inputBound(Value input) {
  int64_t bound = 0;
  auto limit = [&](int64_t size) { bound = bound == 0 ? size : std::min(bound, size); };
  llvm::SetVector<Value> reached;
  reached.insert(input);
  for (size_t i = 0; i < reached.size(); ++i) {
    for (OpOperand &use : reached[i].getUses()) {
      Operation *op = use.getOwner();
      if (auto gather = dyn_cast<GatherOp>(op); gather && use.getOperandNumber() == 1)
        limit(tensorType(gather.getTable()).getDimSize(gather.getDim()));
      else if (auto loss = dyn_cast<CrossEntropyOp>(op); loss && use.getOperandNumber() == 1)
        limit(tensorType(loss.getLogits()).getShape().back());
      else if (auto embedding = dyn_cast<EmbeddingOp>(op); embedding && use.getOperandNumber() == 1)
        limit(vocabularySize(embedding.getNumbers()));
      else if (auto sums = dyn_cast<ClassSumsOp>(op); sums && use.getOperandNumber() == 2)
        limit(vocabularySize(sums.getNumbers()));
      else if (op->hasAttr(kFlagsAttr))
        limit(2);
      else if (isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp, CastOp>(op))
        reached.insert(op->getResult(0));
    }
  }
  return bound;
}

std::optional<int64_t> ignoredLabel(Value input) {
  for (Operation *user : input.getUsers()) {
    if (auto loss = dyn_cast<CrossEntropyOp>(user); loss && loss.getLabels() == input)
      return int64_t(loss.getIgnoreIndex());
    if (auto sums = dyn_cast<ClassSumsOp>(user); sums && sums.getLabels() == input)
      return int64_t(sums.getIgnoreIndex());
    if (isa<ReshapeOp>(user))
      if (auto ignored = ignoredLabel(user->getResult(0)))
        return ignored;
  }
  return std::nullopt;
}

/// Returns uniform doubles in [low, high) that are exact in f32.
static std::vector<double> uniform(std::mt19937_64 &random, int64_t count, double low,
                                   double high) {
  std::vector<double> values(count);
  for (double &value : values) {
    double unit = double(random() >> 40) / double(1 << 24);
    value = float(low + (high - low) * unit);
  }
  return values;
}

static kernels::Tensor makeInput(Value arg, bool isLabel, const std::vector<int64_t> &shape,
                                 kernels::Arith arith, std::mt19937_64 &random,
                                 const InputRange &range) {
  kernels::TensorType type = *toKernelType(arg.getType());
  type.shape = shape;
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  if (kernels::isFloat(type.dtype))
    return kernels::Tensor::fromDoubles(type, arith, uniform(random, count, range.low, range.high));
  int64_t bound = inputBound(arg) ? inputBound(arg) : 2;
  std::vector<int64_t> values(count);
  std::optional<int64_t> ignored = isLabel ? ignoredLabel(arg) : std::nullopt;
  for (int64_t &value : values) {
    value = int64_t(random() % uint64_t(bound));
    // Some labels are ignored, to test the mean over the others.
    if (ignored && random() % 4 == 0)
      value = *ignored;
  }
  return kernels::Tensor::fromInts(type, values);
}

static std::vector<int64_t> countedFrom(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// Returns `value` padded with zeros to `shape` (a padded vocabulary).
static kernels::Tensor padded(kernels::Tensor value, const kernels::Shape &shape,
                              kernels::Arith arith) {
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (value.shape()[dim] == shape[dim])
      continue;
    kernels::TensorType type = value.type();
    type.shape[dim] = shape[dim];
    kernels::Attrs attrs{
        {"dim", int64_t(dim)}, {"low", int64_t(0)}, {"high", shape[dim] - value.shape()[dim]}};
    value = kernels::findKernel("pad")(arith, attrs, {value}, {type})[0];
  }
  return value;
}

/// Returns the initial value of a parameter or state: from the file, or seeded if the file has no
/// weights.
static Result<kernels::Tensor> makeInitial(const frontend::ParameterSource &source,
                                           kernels::Arith arith, uint64_t seed) {
  if (source.present)
    return frontend::loadParameter(source, arith);
  std::mt19937_64 random(seed);
  int64_t count = 1;
  for (int64_t size : source.shape)
    count *= size;
  // Variances must be positive.
  auto values =
      source.isState ? uniform(random, count, 0.5, 1.5) : uniform(random, count, -0.1, 0.1);
  return kernels::Tensor::fromDoubles({source.dtype, source.shape}, arith, values);
}

Result<RunData> makeRunData(TrainingStep &step, const planner::Plan &plan, int steps,
                            kernels::Arith arith, uint64_t seed, const InputRange &range) {
  RunData data;
  uint64_t number = 0;
  const std::map<std::string, kernels::Shape> shapes = parameterShapes(step);
  for (const frontend::ParameterSource &source : step.model.parameters) {
    auto value = makeInitial(source, arith, seed * 1000003 + number++);
    if (!value)
      return value.error();
    auto shape = shapes.find(source.name);
    data.initial[source.name] =
        shape == shapes.end() ? std::move(*value) : padded(std::move(*value), shape->second, arith);
  }
  reshard::Graph graph =
      planner::withBatch(step.step.graph, plan.microBatch * plan.mesh.dataRanks());
  std::mt19937_64 random(seed);
  data.steps.resize(steps);
  for (int s = 0; s < steps; ++s) {
    data.steps[s].resize(plan.accumulation);
    int64_t firstSample = 0;
    for (auto &inputs : data.steps[s]) {
      for (size_t i = 0; i < graph.values.size(); ++i) {
        const reshard::GraphValue &value = graph.values[i];
        if (value.producer >= 0 || value.role != reshard::ValueRole::Input)
          continue;
        kernels::Shape shape = value.layout.shape();
        // Step and sample indices are counted, not random.
        if (value.name == kStepName)
          inputs[value.name] = kernels::Tensor::fromInts({kernels::DType::I64, shape}, {s + 1});
        else if (value.name == kSampleName)
          inputs[value.name] = kernels::Tensor::fromInts({kernels::DType::I64, shape},
                                                         countedFrom(firstSample, shape[0]));
        else
          inputs[value.name] = makeInput(step.step.values[i],
                                         argumentRole(step.train, unsigned(i)) == TensorRole::Label,
                                         shape, arith, random, range);
      }
      firstSample += plan.microBatch * plan.mesh.dataRanks();
    }
  }
  return data;
}

/// Returns the distance of 1 to the next number of `dtype`.
static double ulpOfOne(kernels::DType dtype) {
  switch (dtype) {
  case kernels::DType::F64:
    return 0x1p-52;
  case kernels::DType::BF16:
    return 0x1p-7;
  case kernels::DType::F16:
    return 0x1p-10;
  default:
    return 0x1p-23;
  }
}

void moveParameters(RunData &data, TrainingStep &step, kernels::Arith arith, uint64_t number) {
  std::mt19937_64 random(number);
  for (const frontend::ParameterSource &source : step.model.parameters) {
    if (source.isState || !kernels::isFloat(source.dtype))
      continue;
    kernels::Tensor &tensor = data.initial.at(source.name);
    std::vector<double> values = tensor.toDoubles();
    for (double &value : values)
      value *= 1 + (double(random() % 3) - 1) * ulpOfOne(source.dtype);
    // Both arithmetics start from the same numbers, those of the dtype.
    kernels::Tensor rounded =
        kernels::Tensor::fromDoubles(tensor.type(), kernels::Arith::Native, values);
    tensor = kernels::Tensor::fromDoubles(tensor.type(), arith, rounded.toDoubles());
  }
}

} // namespace tbc::driver

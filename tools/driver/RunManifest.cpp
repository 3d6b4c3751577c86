//===- RunManifest.cpp - Describe the inputs and initial values of a run ----===//

#include "tools/driver/RunManifest.h"

#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "ir/Roles.h"
#include "passes/optimizer/BuildUpdate.h"
#include "passes/random/UseDropout.h"
#include "planner/devices/StageDevices.h"
#include "planner/memory/Memory.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanDevices.h"
#include "runtime/abi/ObservedOps.h"
#include "runtime/abi/Sha256.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <set>

using namespace mlir;

namespace tbc::driver {

/// Returns the dim of an input that depends on the number of samples; -1 if there is none.
static int batchDimOf(const reshard::Graph &small, const reshard::Graph &large, size_t value) {
  std::vector<int64_t> a = small.values[value].layout.shape();
  std::vector<int64_t> b = large.values[value].layout.shape();
  for (size_t d = 0; d < a.size(); ++d)
    if (a[d] != b[d])
      return int(d);
  return -1;
}

static std::vector<train::Input> describeInputs(TrainingStep &step, const planner::Plan &plan) {
  int64_t samples = plan.microBatch * plan.mesh.dataRanks();
  reshard::Graph small = planner::withBatch(step.step.graph, samples);
  reshard::Graph large = planner::withBatch(step.step.graph, 2 * samples);
  std::vector<train::Input> inputs;
  for (size_t i = 0; i < small.values.size(); ++i) {
    const reshard::GraphValue &value = small.values[i];
    if (value.producer >= 0 || value.role != reshard::ValueRole::Input)
      continue;
    train::Input input;
    input.name = value.name;
    input.batchDim = batchDimOf(small, large, i);
    if (value.name == kStepName) {
      input.kind = train::InputKind::Step;
    } else if (value.name == kSampleName) {
      input.kind = train::InputKind::Sample;
    } else {
      Value argument = step.step.values[i];
      bool labels = argumentRole(step.train, unsigned(i)) == TensorRole::Label;
      input.kind = labels ? train::InputKind::Label : train::InputKind::Data;
      input.below = inputBound(argument);
      input.ignored = labels ? ignoredLabel(argument) : std::nullopt;
    }
    inputs.push_back(input);
  }
  return inputs;
}

/// Returns the initializer of a parameter or state without data. Norm weights and running variances
/// are ones; other vectors (biases, running means) are zeros; everything else is random.
static train::Start startOf(Value argument, bool isState) {
  if (tensorType(argument).getRank() > 1)
    return train::Start::Normal;
  constexpr unsigned scaleOperand = 1, varianceOperand = 4;
  for (OpOperand &use : argument.getUses()) {
    Operation *op = use.getOwner();
    if (isa<LayerNormOp, RmsNormOp>(op) && use.getOperandNumber() == scaleOperand)
      return train::Start::Ones;
    if (isa<BatchNormOp>(op) &&
        (use.getOperandNumber() == scaleOperand || use.getOperandNumber() == varianceOperand))
      return train::Start::Ones;
    if (isa<MulOp>(op))
      return train::Start::Ones;
    if (isa<ReshapeOp, TransposeOp, BroadcastOp, CastOp>(op) &&
        startOf(op->getResult(0), isState) == train::Start::Ones)
      return train::Start::Ones;
  }
  return train::Start::Zeros;
}

/// Returns the op that computes the norm of all gradients; empty if there is none.
static std::string gradientNormOf(const program::Program &program) {
  static_assert(std::string_view(kGradientNormId.data(), kGradientNormId.size()) ==
                program::gradientNormId);
  for (const program::Instruction &instruction : program.stages[0].update.instructions)
    if (instruction.id == program::gradientNormId)
      return instruction.id;
  return "";
}

/// Returns the path of `file` relative to `folder`.
static std::string pathFrom(const std::string &folder, const std::string &file) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::proximate(file, folder, error);
  return error ? file : path.string();
}

/// Returns the seal of a parameter's file as the import opened it. The Program was made from that
/// content; another file may be at the path now.
static Result<program::FileSeal> sealOfData(const frontend::ParameterSource &source,
                                            const std::string &folder) {
  auto file = frontend::openDataOf(source);
  if (!file)
    return file.error();
  program::FileSeal seal;
  seal.path = pathFrom(folder, source.file);
  seal.bytes = int64_t(file->size());
  if (seal.bytes > program::largestHashedBytes)
    seal.modifiedNanoseconds = file->modifiedNanoseconds();
  else
    seal.sha256 = sha256Hex({reinterpret_cast<const char *>(file->data()), size_t(file->size())});
  return seal;
}

Result<program::Seal> makeSeal(const std::string &folder, const std::vector<std::string> &names,
                               const train::Manifest &manifest, const std::string &modelPath) {
  program::Seal seal;
  for (const std::string &name : names) {
    auto file = program::OpenFile::open((std::filesystem::path(folder) / name).string());
    if (!file)
      return file.error();
    auto sealed = program::sealOf(*file, name, std::numeric_limits<int64_t>::max());
    if (!sealed)
      return sealed.error();
    seal.files.push_back(std::move(*sealed));
  }
  std::string model = pathFrom(folder, modelPath);
  auto isModel = [&](const program::FileSeal &file) { return file.path == model; };
  auto known = std::find_if(manifest.files.begin(), manifest.files.end(), isModel);
  if (known != manifest.files.end()) {
    seal.sources.push_back(*known);
  } else {
    auto file = program::OpenFile::open(modelPath);
    if (!file)
      return file.error();
    auto sealed = program::sealOf(*file, model);
    if (!sealed)
      return sealed.error();
    seal.sources.push_back(std::move(*sealed));
  }
  std::copy_if(manifest.files.begin(), manifest.files.end(), std::back_inserter(seal.sources),
               [&](const program::FileSeal &file) { return !isModel(file); });
  return seal;
}

Result<train::Manifest> makeRunManifest(TrainingStep &step, const planner::Plan &plan,
                                        const program::Program &program,
                                        const std::string &programText, const std::string &folder) {
  train::Manifest manifest;
  manifest.programHash = sha256Hex(programText);
  manifest.model = step.model.identity;
  manifest.gradientNorm = gradientNormOf(program);
  manifest.multipliesInFp8 = plan.job.matmulPrecision == planner::MatmulPrecision::Fp8;
  const planner::Prediction &predicted = plan.prediction;
  manifest.modelFlops = predicted.modelFlops;
  // By the definition of MFU, peak = flops / (mfu * seconds).
  if (predicted.mfu * predicted.stepSeconds > 0)
    manifest.peakFlopsPerSecond = predicted.modelFlops / (predicted.mfu * predicted.stepSeconds);
  for (const planner::StageMemory &stage : predicted.stages)
    manifest.memory.push_back({planner::programBytes(stage), stage.totalBytes()});
  planner::StageDevices devices = planner::stageDevices(plan);
  for (int stage = 0; !devices.isUniform() && stage < program.numStages(); ++stage)
    manifest.stageDevices.push_back(plan.cluster.groups[devices.kindOf(stage).group].name);
  // Nodes of several sizes, or stages on some of the cluster's nodes, may all have the same device.
  if (std::set<std::string>(manifest.stageDevices.begin(), manifest.stageDevices.end()).size() < 2)
    manifest.stageDevices.clear();
  manifest.tokensPerSample = step.model.seq;
  manifest.inputs = describeInputs(step, plan);
  std::map<std::string, Value> arguments;
  for (size_t i = 0; i < step.step.graph.values.size(); ++i)
    if (step.step.graph.values[i].producer < 0)
      arguments[step.step.graph.values[i].name] = step.step.values[i];

  std::map<std::string, int> files;
  for (const frontend::ParameterSource &source : step.model.parameters) {
    train::Initializer initializer;
    initializer.name = source.name;
    initializer.type = {source.dtype, source.shape};
    auto argument = arguments.find(source.name);
    if (source.displayName != source.name)
      initializer.path = source.displayName;
    initializer.isTransposed = source.isTransposed;
    initializer.isState = source.isState;
    if (argument != arguments.end())
      initializer.start = startOf(argument->second, source.isState);
    if (source.present) {
      auto [found, isNew] = files.try_emplace(source.file, int(manifest.files.size()));
      if (isNew) {
        auto sealed = sealOfData(source, folder);
        if (!sealed)
          return sealed.error();
        manifest.files.push_back(std::move(*sealed));
      }
      initializer.file = found->second;
      initializer.offset = source.offset;
      initializer.bytes = source.bytes;
      initializer.isVarint = source.encoding == frontend::ParameterSource::Encoding::Varint;
    }
    manifest.initializers.push_back(std::move(initializer));
  }
  return manifest;
}

} // namespace tbc::driver

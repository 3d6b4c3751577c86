//===- Feed.cpp - From a data set to a rank's inputs -----------------------===//

#include "runtime/train/Feed.h"
#include "runtime/train/Values.h"

#include <algorithm>

namespace tbc::train {

using kernels::Shape;
using kernels::Tensor;

Result<Feed> Feed::open(const program::Program &program, const Manifest &manifest,
                        const DataOptions &options, kernels::Arith arith) {
  auto failed = [](const std::string &name, const std::string &why) {
    return Error{ErrorCode::Usage, "input \"" + name + "\": " + why + "; compile again"};
  };
  Feed feed;
  feed.arith = arith;
  feed.numMicroBatches = program.microBatches;
  feed.samplesPerMicroBatch = 0;
  std::vector<data::Field> fields;
  for (const program::GlobalTensor &tensor : program.tensors) {
    if (tensor.role != program::Role::Input)
      continue;
    auto found = std::find_if(manifest.inputs.begin(), manifest.inputs.end(),
                              [&](const Input &input) { return input.name == tensor.name; });
    if (found == manifest.inputs.end())
      return failed(tensor.name, "the Program's run.json does not have it");
    Source source{*found, -1};
    const Shape &shape = tensor.type.shape;
    if (found->kind != InputKind::Step) {
      if (found->batchDim < 0 || found->batchDim >= int(shape.size()))
        return failed(tensor.name, "the Program's run.json gives it a dim that it does not have");
      int64_t samples = shape[found->batchDim];
      if (feed.samplesPerMicroBatch != 0 && feed.samplesPerMicroBatch != samples)
        return failed(tensor.name, "its batch is not that of the others");
      feed.samplesPerMicroBatch = samples;
    }
    if (found->kind == InputKind::Data || found->kind == InputKind::Label) {
      source.field = int(fields.size());
      data::Field field;
      field.name = tensor.name;
      field.dtype = tensor.type.dtype;
      field.elements = kernels::numElements(shape) / std::max<int64_t>(1, shape[found->batchDim]);
      field.shape = shape;
      field.shape.erase(field.shape.begin() + found->batchDim);
      field.isLabel = found->kind == InputKind::Label;
      field.below = found->below;
      field.ignored = found->ignored;
      fields.push_back(field);
    }
    feed.sources[tensor.name] = source;
  }
  if (feed.samplesPerMicroBatch == 0)
    return Error{ErrorCode::Usage, "the Program has no inputs with samples"};
  auto dataset = data::openDataset(options.sources, fields, options.wideTokens, options.seed);
  if (!dataset)
    return dataset.error();
  feed.dataset = std::move(*dataset);
  auto sampler = data::Sampler::create(feed.dataset->numSamples(), feed.globalBatch(),
                                       options.isShuffled, options.seed);
  if (!sampler)
    return sampler.error();
  feed.sampler = std::make_shared<data::Sampler>(std::move(*sampler));
  return feed;
}

Status Feed::changeBatchAfter(int64_t step, int64_t batch, const data::BatchOrigin &was) {
  auto earlier = data::Sampler::create(dataset->numSamples(), batch, /*isShuffled=*/false, 0);
  if (!earlier)
    return earlier.error();
  earlier->beginAt(was);
  std::optional<data::BatchOrigin> now = earlier->originAfter(step);
  if (!now) {
    int64_t epoch = earlier->epoch(step);
    return Error{ErrorCode::Usage, "global batches may become larger or smaller between two epochs "
                                   "alone, and step " +
                                       std::to_string(step) + " is within epoch " +
                                       std::to_string(epoch + 1) + ", which ends with step " +
                                       std::to_string(earlier->lastStepOf(epoch + 1)) +
                                       "; end the run before with --epochs"};
  }
  sampler->beginAt(*now);
  return Status::ok();
}

runtime::StepInputs Feed::inputs(int64_t step, double learningRate) {
  return inputsOf(step, step, learningRate);
}

runtime::StepInputs Feed::evaluationInputs(int64_t step) { return inputsOf(step, 0, 0); }

runtime::StepInputs Feed::inputsOf(int64_t number, int64_t told, double learningRate) {
  auto step = std::make_shared<Step>();
  step->told = told;
  for (int64_t place = 0; place < globalBatch(); ++place)
    step->samples.push_back(sampler->sample(number, place));
  runtime::StepInputs inputs;
  inputs.learningRate = learningRate;
  inputs.numThreads = numThreads;
  inputs.pieces = [this, step](int64_t microBatch, const program::GlobalTensor &tensor,
                               const std::vector<int64_t> &indices,
                               const kernels::TensorType &local) {
    return piece(*step, microBatch, tensor, indices, local);
  };
  return inputs;
}

Result<double> Feed::element(const Source &source, const Shape &shape, const Step &step,
                             int64_t microBatch, int64_t index) const {
  if (source.input.kind == InputKind::Step)
    return double(step.told);
  int64_t inner = 1;
  for (size_t d = size_t(source.input.batchDim) + 1; d < shape.size(); ++d)
    inner *= shape[d];
  int64_t samples = shape[source.input.batchDim];
  int64_t row = index / inner % samples;
  int64_t place = microBatch * samplesPerMicroBatch + row;
  if (source.input.kind == InputKind::Sample)
    return double(place);
  int64_t withinSample = index / (inner * samples) * inner + index % inner;
  return dataset->value(size_t(source.field), step.samples[size_t(place)], withinSample);
}

Result<Tensor> Feed::piece(const Step &step, int64_t microBatch,
                           const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
                           const kernels::TensorType &local) const {
  const Source &source = sources.at(tensor.name);
  std::vector<double> values(indices.size(), 0);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0)
      continue;
    Result<double> value = element(source, tensor.type.shape, step, microBatch, indices[i]);
    if (!value)
      return value.error();
    values[i] = *value;
  }
  return tensorOf(local, arith, values);
}

} // namespace tbc::train

//===- Feed.h - From a data set to a rank's inputs -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_FEED_H
#define TBC_RUNTIME_TRAIN_FEED_H

#include "runtime/data/Dataset.h"
#include "runtime/data/Sampler.h"
#include "runtime/exec/Executor.h"
#include "runtime/train/Manifest.h"

#include <map>
#include <memory>

namespace tbc::train {

/// The sources of the data.
struct DataOptions {
  std::vector<std::string> sources; // see data::openDataset
  bool wideTokens = false;
  bool isShuffled = true;
  uint64_t seed = 1;
};

/// Fills the inputs of a step. A rank asks for its own elements only, and every plan sees the same
/// global batches.
class Feed {
public:
  /// Errors: Usage, for data that does not fit the program's inputs.
  static Result<Feed> open(const program::Program &program, const Manifest &manifest,
                           const DataOptions &options, kernels::Arith arith);

  /// Makes inputs on so many threads; at first one. The numbers do not depend on it.
  void useThreads(int count) { numThreads = count; }
  /// Returns the inputs of step `step`, from 1; valid as long as this object.
  runtime::StepInputs inputs(int64_t step, double learningRate);
  /// Returns the inputs for forward blocks only, with the samples of step `step`. The Program sees
  /// step number 0, which turns dropout off.
  runtime::StepInputs evaluationInputs(int64_t step);

  int64_t globalBatch() const { return samplesPerMicroBatch * numMicroBatches; }
  int64_t epoch(int64_t step) const { return sampler->epoch(step); }
  /// The steps of an epoch; 0 for endless data.
  int64_t stepsPerEpoch() const { return sampler->numSteps(); }
  /// The last step of the first `epochs` epochs, for finite data.
  int64_t lastStepOf(int64_t epochs) const { return sampler->lastStepOf(epochs); }

  /// The point from which steps take global batches of this size.
  const data::BatchOrigin &origin() const { return sampler->origin(); }
  void beginAt(const data::BatchOrigin &origin) { sampler->beginAt(origin); }
  /// Continues with this batch size after step `step` of a run with global batches of `globalBatch`
  /// samples from `was` on. Errors: Usage, if that step does not end an epoch.
  Status changeBatchAfter(int64_t step, int64_t globalBatch, const data::BatchOrigin &was);

private:
  Feed() = default;
  /// The source of an input tensor of the program.
  struct Source {
    Input input;
    int field = -1; // of the data set
  };
  /// `told` is the step number that the Program sees; `samples` are those of the global batch.
  struct Step {
    int64_t told;
    std::vector<int64_t> samples;
  };
  runtime::StepInputs inputsOf(int64_t number, int64_t told, double learningRate);
  Result<kernels::Tensor> piece(const Step &step, int64_t microBatch,
                                const program::GlobalTensor &tensor,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local) const;
  Result<double> element(const Source &source, const kernels::Shape &shape, const Step &step,
                         int64_t microBatch, int64_t index) const;

  kernels::Arith arith = kernels::Arith::Native;
  int64_t samplesPerMicroBatch = 1, numMicroBatches = 1;
  int numThreads = 1;
  std::map<std::string, Source> sources; // by name
  std::shared_ptr<data::Dataset> dataset;
  std::shared_ptr<data::Sampler> sampler;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_FEED_H

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

/// Where the data comes from.
struct DataOptions {
  std::vector<std::string> sources; // see data::openDataset
  bool wideTokens = false;
  bool isShuffled = true;
  uint64_t seed = 1;
};

/// Fills the inputs of a step: a rank asks for its own elements only, and every plan sees the same
/// global batches.
class Feed {
public:
  /// Errors: Usage, for data that does not fit the program's inputs.
  static Result<Feed> open(const program::Program &program, const Manifest &manifest,
                           const DataOptions &options, kernels::Arith arith);

  /// The inputs of step `step`, from 1; valid as long as this.
  runtime::StepInputs inputs(int64_t step, double learningRate);
  /// Those of the step's samples for forward blocks alone. They are told that it is step 0, in
  /// which nothing is dropped at random.
  runtime::StepInputs evaluationInputs(int64_t step);

  int64_t globalBatch() const { return samplesPerMicroBatch * numMicroBatches; }
  int64_t epoch(int64_t step) const { return sampler->epoch(step); }
  /// Of an epoch; 0 for data without end.
  int64_t stepsPerEpoch() const { return sampler->numSteps(); }
  /// The last step of so many epochs, of data that ends.
  int64_t lastStepOf(int64_t epochs) const { return sampler->lastStepOf(epochs); }

  /// Where steps began to take global batches of this size.
  const data::BatchOrigin &origin() const { return sampler->origin(); }
  void beginAt(const data::BatchOrigin &origin) { sampler->beginAt(origin); }
  /// Goes on with this size of batch after step `step` of a run whose batches had `globalBatch`
  /// samples from `was` on. Errors: Usage, where that step does not end an epoch.
  Status changeBatchAfter(int64_t step, int64_t globalBatch, const data::BatchOrigin &was);

private:
  Feed() = default;
  /// What a tensor of the program is.
  struct Source {
    Input input;
    int field = -1; // of the data set
  };
  /// Which samples a step takes, and which it is told that it is.
  struct Step {
    int64_t number, told;
  };
  runtime::StepInputs inputsOf(Step step, double learningRate);
  Result<kernels::Tensor> piece(Step step, int64_t microBatch, const program::GlobalTensor &tensor,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local);
  Result<double> element(const Source &source, const kernels::Shape &shape, Step step,
                         int64_t microBatch, int64_t index);

  kernels::Arith arith = kernels::Arith::Native;
  int64_t samplesPerMicroBatch = 1, numMicroBatches = 1;
  std::map<std::string, Source> sources; // by name
  std::shared_ptr<data::Dataset> dataset;
  std::shared_ptr<data::Sampler> sampler;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_FEED_H

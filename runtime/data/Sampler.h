//===- Sampler.h - Which samples a step takes ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_SAMPLER_H
#define TBC_RUNTIME_DATA_SAMPLER_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tbc::data {

/// Where a run began to take its present number of samples per step: after so many steps and epochs
/// and, of data without end, samples.
struct BatchOrigin {
  int64_t steps = 0, epochs = 0, samples = 0;
  bool operator==(const BatchOrigin &o) const {
    return steps == o.steps && epochs == o.epochs && samples == o.samples;
  }
};

/// The order of samples, the same on every rank and under every plan. An epoch is a permutation of
/// all samples, cut into global batches; the samples that do not fill one are left out of it. A
/// data set without end is taken in order.
class Sampler {
public:
  /// Errors: Usage, where there are fewer samples than a global batch takes.
  static Result<Sampler> create(int64_t numSamples, int64_t globalBatch, bool isShuffled,
                                uint64_t seed);

  /// Steps behind `origin.steps` take global batches of this size, from there on; the steps before
  /// took others, and are not asked for. Without a call it is the first step.
  void beginAt(const BatchOrigin &origin) { begin = origin; }
  const BatchOrigin &origin() const { return begin; }
  /// The origin of another size of batch behind step `step` of this one's: within data that ends
  /// there is one at the end of an epoch alone.
  std::optional<BatchOrigin> originAfter(int64_t step) const;
  /// The last step of so many epochs; for data that ends.
  int64_t lastStepOf(int64_t epochs) const;

  /// The sample at place `place` (0 .. globalBatch - 1) of the global batch of step `step`, from 1.
  int64_t sample(int64_t step, int64_t place);
  /// Of an epoch; 0 without end.
  int64_t numSteps() const { return stepsPerEpoch; }
  /// From 0; always 0 without end.
  int64_t epoch(int64_t step) const;

private:
  Sampler() = default;
  void shuffle(int64_t epoch);

  int64_t numSamples = 0, globalBatch = 1, stepsPerEpoch = 0;
  bool isShuffled = true;
  uint64_t seed = 0;
  BatchOrigin begin;
  int64_t shuffledEpoch = -1;
  std::vector<int64_t> order; // of shuffledEpoch
};

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_SAMPLER_H

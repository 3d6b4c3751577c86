//===- Sampler.h - The samples of each step -------------------------------===//
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

/// The point at which a run began to use its present global batch size: the steps and epochs before
/// it and, for endless data, the samples before it.
struct BatchOrigin {
  int64_t steps = 0, epochs = 0, samples = 0;
  bool operator==(const BatchOrigin &o) const {
    return steps == o.steps && epochs == o.epochs && samples == o.samples;
  }
};

/// The order of samples, the same on every rank and under every plan. An epoch is a permutation of
/// all samples, cut into global batches; a remainder smaller than a batch is left out. Endless data
/// is taken in order. Example: 10 samples in global batches of 4: an epoch has 2 steps and leaves
/// out 2 samples.
class Sampler {
public:
  /// Errors: Usage, if the data has fewer samples than one global batch.
  static Result<Sampler> create(int64_t numSamples, int64_t globalBatch, bool isShuffled,
                                uint64_t seed);

  /// Steps after `origin.steps` use global batches of this size, counted from `origin`. Earlier
  /// steps used another size and cannot be asked for. Without a call, the origin is before the
  /// first step.
  void beginAt(const BatchOrigin &origin) { begin = origin; }
  const BatchOrigin &origin() const { return begin; }
  /// Returns the origin for another batch size after step `step`. For finite data there is one only
  /// at the end of an epoch.
  std::optional<BatchOrigin> originAfter(int64_t step) const;
  /// The last step of the first `epochs` epochs, for finite data.
  int64_t lastStepOf(int64_t epochs) const;

  /// Returns the sample at index `place` (0 .. globalBatch - 1) of the global batch of step `step`,
  /// from 1.
  int64_t sample(int64_t step, int64_t place);
  /// The steps of an epoch; 0 for endless data.
  int64_t numSteps() const { return stepsPerEpoch; }
  /// The epoch of a step, from 0; always 0 for endless data.
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

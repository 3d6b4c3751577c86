//===- Sampler.h - Which samples a step takes ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_SAMPLER_H
#define TBC_RUNTIME_DATA_SAMPLER_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <vector>

namespace tbc::data {

/// The order of samples, the same on every rank and under every plan. An epoch is a permutation of
/// all samples, cut into global batches; the samples that do not fill one are left out of it. A
/// data set without end is taken in order.
class Sampler {
public:
  /// Errors: Usage, where there are fewer samples than a global batch takes.
  static Result<Sampler> create(int64_t numSamples, int64_t globalBatch, bool isShuffled,
                                uint64_t seed);

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
  int64_t shuffledEpoch = -1;
  std::vector<int64_t> order; // of shuffledEpoch
};

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_SAMPLER_H

//===- Sampler.cpp - The samples of each step -----------------------------===//

#include "runtime/data/Sampler.h"
#include "runtime/kernels/Random.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tbc::data {

Result<Sampler> Sampler::create(int64_t numSamples, int64_t globalBatch, bool isShuffled,
                                uint64_t seed) {
  if (numSamples > 0 && numSamples < globalBatch)
    return Error{ErrorCode::Usage, "--data: there are " + std::to_string(numSamples) +
                                       " samples, and a global batch takes " +
                                       std::to_string(globalBatch)};
  Sampler sampler;
  sampler.numSamples = numSamples;
  sampler.globalBatch = globalBatch;
  sampler.stepsPerEpoch = numSamples / globalBatch;
  sampler.isShuffled = isShuffled;
  sampler.seed = seed;
  return sampler;
}

int64_t Sampler::epoch(int64_t step) const {
  return numSamples == 0 ? 0 : begin.epochs + (step - 1 - begin.steps) / stepsPerEpoch;
}

std::optional<BatchOrigin> Sampler::originAfter(int64_t step) const {
  int64_t taken = step - begin.steps;
  if (numSamples == 0)
    return BatchOrigin{step, 0, begin.samples + taken * globalBatch};
  if (taken % stepsPerEpoch != 0)
    return std::nullopt;
  return BatchOrigin{step, begin.epochs + taken / stepsPerEpoch, 0};
}

int64_t Sampler::lastStepOf(int64_t epochs) const {
  int64_t more = std::max<int64_t>(0, epochs - begin.epochs), steps = 0;
  if (__builtin_mul_overflow(more, stepsPerEpoch, &steps) ||
      __builtin_add_overflow(steps, begin.steps, &steps))
    return std::numeric_limits<int64_t>::max();
  return steps;
}

int64_t Sampler::sample(int64_t step, int64_t place) {
  if (numSamples == 0)
    return begin.samples + (step - 1 - begin.steps) * globalBatch + place;
  int64_t index = (step - 1 - begin.steps) % stepsPerEpoch * globalBatch + place;
  if (!isShuffled)
    return index;
  if (epoch(step) != shuffledEpoch)
    shuffle(epoch(step));
  return order[size_t(index)];
}

/// The Fisher-Yates shuffle, with Philox at (position, epoch).
void Sampler::shuffle(int64_t epoch) {
  order.resize(size_t(numSamples));
  std::iota(order.begin(), order.end(), int64_t(0));
  for (uint64_t i = uint64_t(numSamples) - 1; i > 0; --i) {
    auto words = kernels::philox({uint32_t(i), uint32_t(i >> 32), uint32_t(epoch), 0x53616d70},
                                 {uint32_t(seed), uint32_t(seed >> 32)});
    // 64 random bits over at most 2^63 positions: the bias is below 2^-20 for any set of 2^44
    // samples.
    uint64_t random = uint64_t(words[0]) << 32 | words[1];
    std::swap(order[i], order[random % (i + 1)]);
  }
  shuffledEpoch = epoch;
}

} // namespace tbc::data

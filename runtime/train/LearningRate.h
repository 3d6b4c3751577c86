//===- LearningRate.h - The learning rate of a step ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_LEARNINGRATE_H
#define TBC_RUNTIME_TRAIN_LEARNINGRATE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>

namespace tbc::train {

struct LearningRate {
  enum class Schedule { Constant, Linear, Cosine };

  double peak = 1e-3, least = 0;
  Schedule schedule = Schedule::Constant;
  int64_t warmupSteps = 0;
  /// The step at which Linear and Cosine reach `least`; 0: the last one of the run.
  int64_t totalSteps = 0;

  /// How the rate grows with the global batch (Goyal et al., arXiv 1706.02677, section 2.1; the
  /// root as of Krizhevsky, arXiv 1404.5997, section 5).
  enum class Growth { None, Linear, Root };
  Growth growth = Growth::None;
  int64_t givenFor = 1; // the global batch that `peak` and `least` are for

  /// The rates for steps of `globalBatch` samples: peak and least times globalBatch / givenFor, or
  /// its root.
  LearningRate forBatch(int64_t globalBatch) const;

  /// The rate of step `step`, from 1. With w = warmupSteps, T = totalSteps:
  ///   step <= w          peak * step / w
  ///   Constant           peak
  ///   step > T           least
  ///   Linear, Cosine     least + (peak - least) * f,  x = (step - w) / (T - w),
  ///                      f = 1 - x or (1 + cos(pi * x)) / 2
  double at(int64_t step) const;
};

/// "constant", "linear" or "cosine". Errors: Usage.
Result<LearningRate::Schedule> parseSchedule(const std::string &text);

/// Sets growth and givenFor from "linear:256" or "sqrt:256". Errors: Usage.
Status parseGrowth(const std::string &text, LearningRate &rate);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_LEARNINGRATE_H

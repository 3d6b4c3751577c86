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

  /// Growth of the rate with the global batch: linear (Goyal et al., arXiv 1706.02677, section
  /// 2.1), or by the square root (Krizhevsky, arXiv 1404.5997, section 5).
  enum class Growth { None, Linear, Root };
  Growth growth = Growth::None;
  int64_t givenFor = 1; // the global batch of `peak` and `least`

  /// Returns the rates for steps of `globalBatch` samples: peak and least times globalBatch /
  /// givenFor, or times its square root. Example: givenFor 256 and globalBatch 1024 give a factor
  /// of 4, or of 2.
  LearningRate forBatch(int64_t globalBatch) const;

  /// Returns the rate of step `step`, from 1. With w = warmupSteps, T = totalSteps:
  ///
  ///   step <= w          peak * step / w
  ///   Constant           peak
  ///   step > T           least
  ///   Linear, Cosine     least + (peak - least) * f,  x = (step - w) / (T - w),
  ///                      f = 1 - x or (1 + cos(pi * x)) / 2
  ///
  /// Example: peak 1e-3, least 0, w = 10, T = 110, Linear: step 5 has 5e-4, step 60 has 5e-4.
  double at(int64_t step) const;
};

/// "constant", "linear" or "cosine". Errors: Usage.
Result<LearningRate::Schedule> parseSchedule(const std::string &text);

/// Sets growth and givenFor from "linear:256" or "sqrt:256". Errors: Usage.
Status parseGrowth(const std::string &text, LearningRate &rate);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_LEARNINGRATE_H

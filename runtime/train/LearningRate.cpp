//===- LearningRate.cpp - The learning rate of a step ----------------------===//

#include "runtime/train/LearningRate.h"

#include <cmath>

namespace tbc::train {

double LearningRate::at(int64_t step) const {
  if (step <= warmupSteps)
    return peak * double(step) / double(warmupSteps);
  if (schedule == Schedule::Constant)
    return peak;
  if (step >= totalSteps)
    return least;
  double x = double(step - warmupSteps) / double(totalSteps - warmupSteps);
  double f = schedule == Schedule::Linear ? 1 - x : (1 + std::cos(M_PI * x)) / 2;
  return least + (peak - least) * f;
}

Result<LearningRate::Schedule> parseSchedule(const std::string &text) {
  if (text == "constant")
    return LearningRate::Schedule::Constant;
  if (text == "linear")
    return LearningRate::Schedule::Linear;
  if (text == "cosine")
    return LearningRate::Schedule::Cosine;
  return Error{ErrorCode::Usage,
               "--lr-schedule " + text + ": there are constant, linear and cosine"};
}

} // namespace tbc::train

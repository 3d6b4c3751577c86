//===- LearningRate.cpp - The learning rate of a step ----------------------===//

#include "runtime/train/LearningRate.h"

#include <charconv>
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

LearningRate LearningRate::forBatch(int64_t globalBatch) const {
  LearningRate result = *this;
  double factor = growth == Growth::None ? 1 : double(globalBatch) / double(givenFor);
  if (growth == Growth::Root)
    factor = std::sqrt(factor);
  result.peak *= factor;
  result.least *= factor;
  return result;
}

Status parseGrowth(const std::string &text, LearningRate &rate) {
  const size_t colon = text.find(':');
  const std::string how = text.substr(0, colon);
  const char *digits = colon == std::string::npos ? "" : text.c_str() + colon + 1;
  const char *end = text.c_str() + text.size();
  int64_t batch = 0;
  auto [rest, error] = std::from_chars(digits, colon == std::string::npos ? digits : end, batch);
  if ((how != "linear" && how != "sqrt") || error != std::errc() || rest != end || batch < 1)
    return Error{ErrorCode::Usage, "--scale-lr " + text +
                                       ": linear:BATCH or sqrt:BATCH is expected, with the global "
                                       "batch that --lr is for, such as linear:256"};
  rate.growth = how == "linear" ? LearningRate::Growth::Linear : LearningRate::Growth::Root;
  rate.givenFor = batch;
  return Status::ok();
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

//===- TrainFlags.cpp - The trainer's options from flags ---------------------===//

#include "tools/tbc-run/TrainFlags.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace tbc::cli {

namespace {

Result<kernels::Arith> parseArith(const std::string &text) {
  if (text == "native")
    return kernels::Arith::Native;
  if (text == "f64")
    return kernels::Arith::F64;
  if (text == "residue")
    return kernels::Arith::Residue61;
  if (text == "residue251")
    return kernels::Arith::Residue251;
  return Error{ErrorCode::Usage,
               "--arith " + text + ": there are native, f64, residue and residue251"};
}

/// Parses "topk:SHARE" and returns the share of elements; 0 for empty text. Example: "topk:0.01"
/// gives 0.01.
Result<double> parseCompression(const std::string &text) {
  if (text.empty())
    return 0.0;
  const std::string prefix = "topk:";
  char *end = nullptr;
  double share = std::strtod(text.c_str() + std::min(prefix.size(), text.size()), &end);
  if (text.rfind(prefix, 0) != 0 || text.size() == prefix.size() || *end != 0 ||
      !(share > 0 && share <= 1))
    return Error{ErrorCode::Usage, "--compress-gradients " + text +
                                       ": it wants topk:SHARE, as topk:0.01, with a share above 0 "
                                       "and up to 1"};
  return share;
}

/// Sets the options of gradient communication.
Status setGradients(const RunOptions &options, train::TrainOptions &train) {
  Result<double> share = parseCompression(options.compression);
  if (!share)
    return share.error();
  train.gradientShare = *share;
  train.sumsGradientsInBF16 = options.commDtype == "bf16";
  if (train.sumsGradientsInBF16 && train.arith != kernels::Arith::Native)
    return Error{ErrorCode::Usage, "--comm-dtype bf16 rounds what --arith " + options.arith +
                                       " keeps; it goes with --arith native"};
  if (train.gradientShare > 0 && train.arith != kernels::Arith::Native)
    return Error{ErrorCode::Usage, "--compress-gradients leaves out what --arith " + options.arith +
                                       " keeps; it goes with --arith native"};
  if (train.gradientShare > 0 && train.sumsGradientsInBF16)
    return Error{ErrorCode::Usage, "--compress-gradients sends values of f32; leave out "
                                   "--comm-dtype bf16"};
  return Status::ok();
}

/// Sets the initial weights: digits are a seed, other text is a path.
Status setInitialWeights(const std::string &text, train::TrainOptions &train) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    train.initPath = text;
    return Status::ok();
  }
  errno = 0;
  train.initSeed = std::strtoull(text.c_str(), nullptr, 10);
  if (errno == ERANGE)
    return Error{ErrorCode::Usage, "--init-weights " + text + ": a seed is below 2^64"};
  return Status::ok();
}

/// Sets up one step and one batch of evaluation, without outputs.
void makeDevRun(train::TrainOptions &train) {
  train.steps = 1;
  train.epochs = 0;
  train.logFile.clear();
  train.eventFolder.clear();
  train.checkpoint = {};
  if (!train.evaluation.sources.empty())
    train.evaluation.batches = 1;
}

} // namespace

Result<train::TrainOptions> trainOptions(const RunOptions &options) {
  train::TrainOptions train = options.train;
  Result<kernels::Arith> arith = parseArith(options.arith);
  if (!arith)
    return arith.error();
  train.arith = *arith;
  if (Status status = setGradients(options, train); !status)
    return status.error();
  auto schedule = train::parseSchedule(options.schedule);
  if (!schedule)
    return schedule.error();
  train.learningRate.schedule = *schedule;
  train.learningRate.totalSteps = options.lrSteps;
  if (!options.lrGrowth.empty())
    if (Status status = train::parseGrowth(options.lrGrowth, train.learningRate); !status)
      return status.error();
  if (train.learningRate.least > train.learningRate.peak)
    return Error{ErrorCode::Usage, "--lr-min is above --lr"};
  train.onNotFinite = options.onNan == "skip" ? train::OnNotFinite::Skip : train::OnNotFinite::Stop;
  train.data.wideTokens = options.tokenBits == 32;
  train.data.isShuffled = !options.isOrdered;
  if (Status status = setInitialWeights(options.initWeights, train); !status)
    return status.error();
  const train::CheckpointOptions &checkpoint = train.checkpoint;
  if (checkpoint.folder.empty() &&
      (checkpoint.resumes || checkpoint.every > 0 || checkpoint.isAsync))
    return Error{ErrorCode::Usage, std::string(checkpoint.resumes     ? "--resume"
                                               : checkpoint.every > 0 ? "--every"
                                                                      : "--async-checkpoint") +
                                       " needs --checkpoint DIR"};
  if (train.evaluation.sources.empty() &&
      (train.evaluation.every > 0 || train.evaluation.batches > 0))
    return Error{ErrorCode::Usage, "--eval-every and --eval-batches need --eval-data"};
  if (train.profile.file.empty() && train.profile.step > 0)
    return Error{ErrorCode::Usage, "--profile-step needs --profile FILE"};
  if (options.isDevRun)
    makeDevRun(train);
  return train;
}

} // namespace tbc::cli

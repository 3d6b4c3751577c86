//===- StepSettings.cpp - Numeric settings of a training step -----------------===//

#include "tools/driver/StepSettings.h"
#include "runtime/abi/Problem.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tbc::driver {

static constexpr double unlimited = std::numeric_limits<double>::max();

const std::vector<SettingInfo> &settingInfos() {
  constexpr double label = 1 << 30, seedLimit = 9007199254740992.0; // 2^53: exact as a double
  constexpr double largestScale = 0x1p127;
  constexpr double mostDecay = 1000; // of a power
  static const std::vector<std::string> adams = {"adam", "adamw", "muon"},
                                        momenta = {"sgd", "sgd-momentum", "muon"},
                                        adagrads = {"adagrad", "rowwise-adagrad"},
                                        dividing = {"adam", "adamw", "muon", "adagrad",
                                                    "rowwise-adagrad"};
  static const std::vector<SettingInfo> infos = {
      {"weight_decay",
       "--weight-decay",
       "Weight decay (default: 0.01 of adamw, 0.1 of muon, else 0)",
       0,
       unlimited,
       false,
       false,
       {}},
      // A decay of 1 divides by the 0 of its correction of the bias.
      {"beta1", "--beta1", "Decay of the first moment (default: 0.9)", 0, 1, false, false, adams,
       std::nullopt, true},
      {"beta2", "--beta2", "Decay of the second moment (default: 0.999)", 0, 1, false, false, adams,
       std::nullopt, true},
      {"epsilon", "--epsilon", "Added to the denominator (default: 1e-8, 1e-10 of adagrad)", 0, 1,
       false, false, dividing},
      {"momentum", "--momentum", "Momentum (default: 0, 0.9 of sgd-momentum, 0.95 of muon)", 0, 1,
       false, false, momenta},
      {"nesterov", "--nesterov", "Nesterov momentum (default of muon)", 0, 1, true, false, momenta,
       1},
      {"nesterov",
       "--no-nesterov",
       "Momentum without Nesterov's step",
       0,
       1,
       true,
       false,
       {"muon"},
       0},
      {"ns_steps",
       "--ns-steps",
       "Iterations that orthogonalize a direction (default: 5)",
       1,
       99,
       true,
       false,
       {"muon"}},
      {"match_rms",
       "--match-rms",
       "Steps of matrices of the size of AdamW's, for one learning rate",
       0,
       1,
       true,
       false,
       {"muon"},
       1},
      {"beta2_decay",
       "--beta2-decay",
       "Power of the step that is the weight of new squares (default: -0.8)",
       -mostDecay,
       0,
       false,
       false,
       {"adafactor"}},
      {"epsilon1",
       "--epsilon1",
       "Smallest root of a second moment (default: machine epsilon, 2^-23 in f32)",
       0,
       1,
       false,
       false,
       {"adafactor"}},
      {"epsilon2",
       "--epsilon2",
       "Smallest size of a parameter, to which steps are relative (default: 1e-3)",
       0,
       unlimited,
       false,
       false,
       {"adafactor"}},
      {"clip_threshold",
       "--clip-threshold",
       "Largest size of the direction of a parameter (default: 1)",
       1,
       unlimited,
       false,
       false,
       {"adafactor"}},
      {"lr_decay",
       "--lr-decay",
       "How the rate falls: lr / (1 + (step - 1) * X) (default: 0)",
       0,
       unlimited,
       false,
       false,
       {"adagrad"}},
      {"initial_accumulator", "--initial-accumulator",
       "Sums of squares before the first step (default: 0)", 0, unlimited, false, false, adagrads},
      {"clip_norm",
       "--clip-norm",
       "Largest norm of all gradients together",
       0,
       unlimited,
       false,
       true,
       {}},
      {"clip_value",
       "--clip-value",
       "Largest magnitude of an element of a gradient",
       0,
       unlimited,
       false,
       true,
       {}},
      {"label_smoothing",
       "--label-smoothing",
       "Part of the target spread over all classes",
       0,
       1,
       false,
       false,
       {"cross-entropy"}},
      {"ignore_index",
       "--ignore-index",
       "Label that does not count (default: -100)",
       -label,
       label,
       true,
       false,
       {"cross-entropy"}},
      {"dropout", "--no-dropout", "Train without the model's dropout", 0, 1, true, false, {}, 0},
      {"pad_vocabulary",
       "--pad-vocabulary",
       "Pad a large vocabulary to a multiple of this (default: 128; 1: do not)",
       1,
       1 << 20,
       true,
       false,
       {}},
      {"capacity_factor",
       "--capacity-factor",
       "Tokens of a sample that an expert takes, as a multiple of an even share; it drops what "
       "comes later (default: drop nothing)",
       0,
       1 << 20,
       false,
       true,
       {}},
      {"seed", "--seed", "Seed of dropout", 0, seedLimit, true, false, {}},
      {"loss_scale",
       "--loss-scale-init",
       "Loss scale to begin with (default: 65536)",
       0,
       largestScale,
       false,
       false,
       {}},
      {"loss_scale_growth",
       "--loss-scale-growth",
       "Factor by which the loss scale grows (default: 2)",
       0,
       largestScale,
       false,
       true,
       {}},
      {"loss_scale_backoff",
       "--loss-scale-backoff",
       "Factor of the loss scale on overflow (default: 0.5)",
       0,
       1,
       false,
       true,
       {}},
      {"loss_scale_interval",
       "--loss-scale-interval",
       "Steps without overflow until the loss scale grows (default: 2000)",
       0,
       seedLimit,
       true,
       false,
       {}},
  };
  return infos;
}

/// Describes the valid values of `info`.
static std::string rangeOf(const SettingInfo &info) {
  auto text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.10g", value);
    return std::string(digits);
  };
  std::string low = (info.isOpen ? "above " : "at least ") + text(info.low);
  if (info.high == unlimited)
    return low;
  return low + (info.isOpen || info.isBelow ? " and below " : " and at most ") + text(info.high);
}

/// Returns why `value` is invalid for `info`, or "".
static std::string whyInvalid(const SettingInfo &info, double value) {
  bool inside =
      info.isOpen ? value > info.low && value < info.high : value >= info.low && value <= info.high;
  inside = inside && !(info.isBelow && value == info.high);
  if (!std::isfinite(value) || !inside)
    return "is out of range: it must be " + rangeOf(info);
  return info.isInteger && value != std::floor(value) ? "must be an integer" : "";
}

/// Returns "a, b or c".
static std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

Status checkSettings(const StepOptions &options) {
  auto wrong = [](const std::string &why) { return problem(Problem::BadFlagValue, why); };
  for (const auto &[name, value] : options.settings) {
    auto info =
        std::find_if(settingInfos().begin(), settingInfos().end(),
                     [&, &wanted = name](const SettingInfo &i) { return i.name == wanted; });
    if (info == settingInfos().end())
      return wrong("there is no setting \"" + name + "\"");
    if (std::string why = whyInvalid(*info, value); !why.empty())
      return wrong(info->flag + " " + why);
    bool applies = info->of.empty() ||
                   std::any_of(info->of.begin(), info->of.end(), [&](const std::string &word) {
                     return word == planner::name(options.optimizer) || word == options.loss;
                   });
    if (!applies)
      return wrong(info->flag + " is for " + joined(info->of) + ", not for " +
                   planner::name(options.optimizer) + " and " + options.loss);
  }
  if (options.settings.count("clip_norm") && options.settings.count("clip_value"))
    return wrong("gradients are clipped by --clip-norm or by --clip-value, not by both");
  if (options.optimizer == planner::Optimizer::RowwiseAdagrad &&
      optimizerOptions(options).weightDecay != 0)
    return wrong("--weight-decay is not for rowwise-adagrad, whose tables have none; use adagrad");
  if (!options.noMuon.empty() && options.optimizer != planner::Optimizer::Muon)
    return wrong(std::string("--no-muon is for muon, not for ") + planner::name(options.optimizer));
  if (optimizerOptions(options).nesterov && optimizerOptions(options).momentum == 0)
    return wrong("--nesterov needs --momentum");
  return Status::ok();
}

/// Sets `value` if the options contain `name`.
template <typename T> static void read(const StepOptions &options, const char *name, T &value) {
  auto found = options.settings.find(name);
  if (found != options.settings.end())
    value = T(found->second);
}

LossOptions lossOptions(const StepOptions &step) {
  LossOptions options;
  if (auto kind = parseLossKind(step.loss); kind && *kind != LossKind::Output) {
    options.kind = *kind;
  } else {
    options.kind = LossKind::Output;
    options.output = step.loss;
  }
  read(step, "label_smoothing", options.labelSmoothing);
  read(step, "ignore_index", options.ignoreIndex);
  return options;
}

OptimizerOptions optimizerOptions(const StepOptions &step) {
  OptimizerOptions options;
  switch (step.optimizer) {
  case planner::Optimizer::AdamW:
    break;
  case planner::Optimizer::Adam:
    options.kind = OptimizerKind::Adam;
    options.weightDecay = 0;
    break;
  case planner::Optimizer::SgdMomentum:
  case planner::Optimizer::Sgd:
    options.kind = OptimizerKind::Sgd;
    options.weightDecay = 0;
    options.momentum = step.optimizer == planner::Optimizer::SgdMomentum ? 0.9 : 0;
    break;
  case planner::Optimizer::Muon:
    options.kind = OptimizerKind::Muon;
    options.weightDecay = 0.1;
    options.momentum = options.muon.momentum;
    options.nesterov = options.muon.nesterov;
    break;
  case planner::Optimizer::Adagrad:
    options.kind = OptimizerKind::Adagrad;
    options.weightDecay = 0;
    options.epsilon = 1e-10;
    break;
  case planner::Optimizer::RowwiseAdagrad:
    options.kind = OptimizerKind::RowwiseAdagrad;
    options.weightDecay = 0;
    break;
  case planner::Optimizer::Adafactor:
    options.kind = OptimizerKind::Adafactor;
    options.weightDecay = 0;
    break;
  }
  read(step, "weight_decay", options.weightDecay);
  read(step, "beta1", options.beta1);
  read(step, "beta2", options.beta2);
  read(step, "epsilon", options.epsilon);
  read(step, "momentum", options.momentum);
  read(step, "nesterov", options.nesterov);
  read(step, "clip_norm", options.clipNorm);
  read(step, "clip_value", options.clipValue);
  options.muon.momentum = options.momentum;
  options.muon.nesterov = options.nesterov;
  read(step, "ns_steps", options.muon.steps);
  read(step, "match_rms", options.muon.matchesRms);
  options.muon.exempt = step.noMuon;
  read(step, "lr_decay", options.adagrad.rateDecay);
  read(step, "initial_accumulator", options.adagrad.initial);
  read(step, "beta2_decay", options.adafactor.beta2Decay);
  if (step.settings.count("epsilon1"))
    options.adafactor.epsilon = step.settings.at("epsilon1");
  read(step, "epsilon2", options.adafactor.epsilon2);
  read(step, "clip_threshold", options.adafactor.clipThreshold);
  options.noDecay = step.noDecay;
  options.lossScale = lossScale(step);
  return options;
}

LossScale lossScale(const StepOptions &step) {
  LossScale scale;
  read(step, "loss_scale", scale.initial);
  read(step, "loss_scale_growth", scale.growthFactor);
  read(step, "loss_scale_backoff", scale.backoffFactor);
  read(step, "loss_scale_interval", scale.growthInterval);
  return scale;
}

Status resolveLossScale(StepOptions &options, bool isF16) {
  if (isF16)
    options.settings.try_emplace("loss_scale", defaultLossScale);
  LossScale scale = lossScale(options);
  for (const char *name : {"loss_scale_growth", "loss_scale_backoff", "loss_scale_interval"})
    if (options.settings.count(name) && !scale.isOn())
      return problem(Problem::BadFlagValue,
                     std::string(name) + " is of a dynamic loss scale: give --loss-scale dynamic");
  if (!scale.isOn())
    return Status::ok();
  options.settings["loss_scale_interval"] = double(scale.growthInterval);
  if (scale.isDynamic()) {
    options.settings["loss_scale_growth"] = scale.growthFactor;
    options.settings["loss_scale_backoff"] = scale.backoffFactor;
  }
  return Status::ok();
}

int64_t vocabularyMultiple(const StepOptions &step) {
  int64_t multiple = 128;
  read(step, "pad_vocabulary", multiple);
  return multiple;
}

std::optional<double> capacityFactor(const StepOptions &step) {
  auto found = step.settings.find("capacity_factor");
  return found == step.settings.end() ? std::nullopt : std::optional<double>(found->second);
}

DropoutOptions dropoutOptions(const StepOptions &step) {
  DropoutOptions options;
  read(step, "dropout", options.isOn);
  read(step, "seed", options.seed);
  return options;
}

} // namespace tbc::driver

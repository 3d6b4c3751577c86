//===- ModelOptions.cpp - Flags that describe the model ------------------------===//

#include "tools/tbc/ModelOptions.h"

#include "planner/plan/Plan.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/StepSettings.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/WordFlags.h"

#include <CLI/CLI.hpp>

#include <charconv>

namespace tbc::cli {

/// Names of precisions in PyTorch (dtypes), Lightning (32-true, bf16-mixed), DeepSpeed and
/// Transformers (fp16). Mixed ones keep f32 master weights, as tbc does; Lightning's bf16-true does
/// not.
static Spellings precisionSpellings() {
  return {{"fp32", "f32"},
          {"float32", "f32"},
          {"32", "f32"},
          {"32-true", "f32"},
          {"float", "f32"},
          {"fp16", "f16"},
          {"float16", "f16"},
          {"16", "f16"},
          {"half", "f16"},
          {"16-mixed", "f16"},
          {"fp16-mixed", "f16"},
          {"bfloat16", "bf16"},
          {"bf16-mixed", "bf16"},
          {"torch.float32", "f32"},
          {"torch.float16", "f16"},
          {"torch.bfloat16", "bf16"}};
}

void addModelOptions(CLI::App &command, ModelOptions &options) {
  command.add_option("model", options.model, "ONNX model file");
  command.option_defaults()->group("The model");
  command
      .add_option("--seq", options.seq,
                  "Sequence length (default: length of the position table, else 4096)")
      ->check(atLeast(1));
  command.add_option("--dim", options.dims, "Size of a symbolic dim, NAME=VALUE (repeatable)");
  command.add_option(
      "--fix", options.fixed,
      "Hold an input constant, INPUT=ones|zeros, or keep it, INPUT=input (repeatable)");
  command.add_option("--tie", options.ties,
                     "Initializer A is parameter B, A=B, or its transpose, A=B^T (repeatable)");
  command.add_option("--constant", options.constants,
                     "Glob of tensors that are constants, not parameters (repeatable)");
  command.add_option("--parameter", options.parameters,
                     "Glob of tensors that are parameters, whatever they look like (repeatable)");
  command.add_option("--detach", options.detached,
                     "Value without a gradient, VALUE or VALUE@NODE for one reader, as globs "
                     "(repeatable)");
  command.add_option("--external-data-root", options.externalDataRoot,
                     "Directory that may hold the external data as links");
  command.option_defaults()->group("The training step");
  command.add_option("--loss", options.loss,
                     "cross-entropy, mse, or the name of an output that is the loss");
  command.add_option("--optimizer", options.optimizer, "Optimizer")
      ->capture_default_str()
      ->transform(oneOf(planner::optimizerNames()));
  for (const driver::SettingInfo &info : driver::settingInfos()) {
    auto set = [&options, name = info.name](const double &value) {
      options.settings[name] = value;
    };
    std::string help = info.help;
    if (!info.of.empty())
      help += "; for " + CLI::detail::join(info.of, ", ");
    if (info.implied)
      command.add_flag_callback(info.flag, [set, value = *info.implied] { set(value); }, help);
    else
      command.add_option_function<double>(info.flag, set, help)
          ->type_name(info.isInteger ? "INT" : "FLOAT");
  }
  command.add_option("--no-decay", options.noDecay,
                     "Glob of parameters whose weights do not decay (repeatable)");
  command.add_option("--no-muon", options.noMuon,
                     "Glob of matrices that step by AdamW (repeatable); for muon");
  command
      .add_option(
          "--precision", options.precision,
          "Precision of parameters and matmuls (default: bf16, or f16 for a model exported in "
          "f16)")
      ->transform(oneOf(planner::precisionNames(), precisionSpellings()));
  command.add_option("--loss-scale", options.lossScale,
                     "dynamic, none, or the number that gradients are scaled by (default: dynamic "
                     "for f16, else none)");
  command.add_option("--freeze", options.freeze,
                     "Glob of parameters that are not trained (repeatable)");
}

/// Splits NAME=VALUE.
static Result<std::pair<std::string, std::string>> split(const std::string &flag,
                                                         const std::string &text) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return problem(Problem::BadFlagValue, flag + " wants NAME=VALUE, not '" + text + "'");
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

/// Parses --loss-scale, which sets several settings.
static Status setLossScale(const std::string &text, std::map<std::string, double> &settings) {
  if (text.empty())
    return Status::ok();
  if (text == "dynamic") {
    settings.try_emplace("loss_scale", driver::defaultLossScale);
    return Status::ok();
  }
  for (const driver::SettingInfo &info : driver::settingInfos())
    if (settings.count(info.name) && info.name.rfind("loss_scale", 0) == 0)
      return problem(Problem::BadFlagValue, info.flag + " is for --loss-scale dynamic");
  double value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool isNumber = code == std::errc() && end == text.data() + text.size() && value > 0;
  if (text != "none" && !isNumber)
    return problem(Problem::BadFlagValue,
                   "--loss-scale wants dynamic, none or a positive number, not '" + text + "'");
  settings["loss_scale"] = value;
  if (isNumber)
    settings["loss_scale_interval"] = 0;
  return Status::ok();
}

Result<driver::StepOptions> toStepOptions(const ModelOptions &options) {
  driver::StepOptions step;
  step.modelPath = options.model;
  step.import.seq = options.seq;
  step.import.externalDataRoot = options.externalDataRoot;
  step.import.ties = options.ties;
  step.import.constants = options.constants;
  step.import.parameters = options.parameters;
  step.import.detached = options.detached;
  step.loss = options.loss;
  step.optimizer = planner::parseOptimizer(options.optimizer).value();
  step.precision = planner::parsePrecision(options.precision);
  step.freeze = options.freeze;
  step.noDecay = options.noDecay;
  step.noMuon = options.noMuon;
  step.settings = options.settings;
  if (Status status = setLossScale(options.lossScale, step.settings); !status)
    return status.error();
  for (const std::string &text : options.dims) {
    auto pair = split("--dim", text);
    if (!pair)
      return pair.error();
    int64_t value = 0;
    const std::string &digits = pair->second;
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code != std::errc() || end != digits.data() + digits.size() || value < 1)
      return problem(Problem::BadFlagValue,
                     "--dim " + text + ": the size must be a positive integer");
    step.import.dims[pair->first] = value;
  }
  for (const std::string &text : options.fixed) {
    auto pair = split("--fix", text);
    if (!pair)
      return pair.error();
    if (pair->second != "ones" && pair->second != "zeros" && pair->second != "input")
      return problem(Problem::BadFlagValue,
                     "--fix " + text +
                         ": an input can be held at ones or zeros, or kept an "
                         "input (=input)");
    step.import.fix[pair->first] = pair->second;
  }
  return step;
}

/// Bindings in a plan: "seq", "dim NAME", "fix NAME" (0 = zeros, 1 = ones, 2 = kept an input),
/// "tie A=B", "constant GLOB", "parameter GLOB", "detach VALUE", "freeze GLOB", "no-decay GLOB" and
/// "no-muon GLOB" (1).
std::map<std::string, int64_t> toBindings(const driver::StepOptions &options) {
  std::map<std::string, int64_t> bindings;
  if (options.import.seq > 0)
    bindings["seq"] = options.import.seq;
  for (const auto &[name, value] : options.import.dims)
    bindings["dim " + name] = value;
  for (const auto &[name, value] : options.import.fix)
    bindings["fix " + name] = value == "zeros" ? 0 : value == "ones" ? 1 : 2;
  for (const std::string &tie : options.import.ties)
    bindings["tie " + tie] = 1;
  for (const std::string &glob : options.import.constants)
    bindings["constant " + glob] = 1;
  for (const std::string &glob : options.import.parameters)
    bindings["parameter " + glob] = 1;
  for (const std::string &value : options.import.detached)
    bindings["detach " + value] = 1;
  for (const std::string &glob : options.freeze)
    bindings["freeze " + glob] = 1;
  for (const std::string &glob : options.noDecay)
    bindings["no-decay " + glob] = 1;
  for (const std::string &glob : options.noMuon)
    bindings["no-muon " + glob] = 1;
  return bindings;
}

} // namespace tbc::cli

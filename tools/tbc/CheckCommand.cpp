//===- CheckCommand.cpp - tbc check -------------------------------------------===//

#include "tools/tbc/CheckCommand.h"

#include "frontend/onnx/NotFinite.h"
#include "ir/ElementTypes.h"
#include "ir/FactorAnalysis.h"
#include "ir/Tbc.h"
#include "passes/raise/RaiseComposites.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/Context.h"
#include "tools/driver/StepSettings.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/ModelOptions.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "llvm/Support/GlobPattern.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <tuple>

using namespace mlir;

namespace tbc::cli {

/// Returns a dim as text, with "b" for the batch factor. Example: "b*1024" for a batch of sequences
/// of 1024, "(768 + 768)" for a sum.
static std::string describeDim(const reshard::DimLayout &layout,
                               std::optional<reshard::FactorId> batch) {
  std::string text;
  for (const reshard::Segment &segment : layout.segments) {
    std::string product;
    for (const reshard::Factor &factor : segment.factors) {
      if (factor.size == 1)
        continue;
      product += (product.empty() ? "" : "*") +
                 (batch && factor.id == *batch ? "b" : std::to_string(factor.size));
    }
    text += (text.empty() ? "" : " + ") + (product.empty() ? "1" : product);
  }
  return layout.segments.size() > 1 ? "(" + text + ")" : text;
}

static CheckedTensor describeTensor(mlir::Value value, const FactorAnalysis &analysis,
                                    const std::string &name) {
  CheckedTensor tensor;
  tensor.name = tensor.displayName = name;
  auto type = tensorType(value);
  tensor.dtype = tbc::name(*dtypeOf(type.getElementType()));
  tensor.shape.assign(type.getShape().begin(), type.getShape().end());
  for (unsigned dim = 0; dim < type.getRank(); ++dim)
    tensor.factors +=
        (dim ? " x " : "") + describeDim(analysis.dimLayout(value, dim), analysis.batchFactor());
  return tensor;
}

/// Returns the FLOPs of the kernel classes counted by convention.
static double countFlops(func::FuncOp function) {
  double flops = 0;
  function.walk([&](CostOpInterface op) {
    if (isMatrixClass(op.getKernelClass()))
      flops += op.getFlops();
  });
  return flops;
}

/// Counts ops on inputs and parameters; constant-derived ops are left out.
static void countOps(func::FuncOp function, CheckReport &report) {
  llvm::DenseSet<Value> given(function.getArguments().begin(), function.getArguments().end());
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (llvm::none_of(op.getOperands(), [&](Value value) { return given.contains(value); }))
      continue;
    given.insert(op.result_begin(), op.result_end());
    std::string mnemonic = op.getName().stripDialect().str();
    ++report.ops[mnemonic];
    if (isa<CompositeOpInterface>(op))
      ++report.composites[mnemonic];
  }
}

std::vector<RepeatedBlock> findRepeatedBlocks(const std::vector<CheckedTensor> &parameters) {
  // By prefix and number: the tensors below it, as text.
  std::map<std::string, std::map<int64_t, std::pair<std::vector<std::string>, int64_t>>> modules;
  for (const CheckedTensor &tensor : parameters) {
    const std::string &name = tensor.displayName;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      size_t end = std::min(name.find('.', dot + 1), name.size());
      std::string number = name.substr(dot + 1, end - dot - 1);
      if (number.empty() || number.size() > 6 ||
          number.find_first_not_of("0123456789") != std::string::npos || end == name.size())
        continue;
      std::string text = name.substr(end) + " " + tensor.dtype + " " + tensor.factors;
      auto &[tensors, elements] = modules[name.substr(0, dot)][std::stoll(number)];
      tensors.push_back(text);
      elements += kernels::numElements(tensor.shape);
      break; // only the outermost number counts
    }
  }
  std::vector<RepeatedBlock> blocks;
  for (auto &[prefix, numbered] : modules) {
    RepeatedBlock block;
    const std::vector<std::string> *before = nullptr;
    auto finish = [&] {
      if (block.count > 1)
        blocks.push_back(block);
      block = RepeatedBlock();
    };
    for (auto &[number, contents] : numbered) {
      auto &[tensors, elements] = contents;
      std::sort(tensors.begin(), tensors.end());
      if (!before || *before != tensors)
        finish();
      block.name = prefix;
      ++block.count;
      block.parameters = elements;
      before = &tensors;
    }
    finish();
  }
  return blocks;
}

/// Adds warnings about easily overlooked training issues.
static void addWarnings(func::FuncOp function, CheckReport &report) {
  auto count = [&](const char *op) { return report.ops.count(op) ? report.ops.at(op) : 0; };
  bool hasNorm = count("batch_norm") + count("batch_norm_train") + count("layer_norm") > 0;
  if (count("conv") > 0 && !hasNorm)
    report.warnings.push_back("convolutions without batch norm: it may have been folded into them; "
                              "export in training mode to train it");
  bool saysDropout =
      llvm::any_of(function.getOps<DropoutOpInterface>(),
                   [](DropoutOpInterface op) { return !op.getDroppedDims().empty(); }) ||
      llvm::any_of(report.warnings,
                   [](const std::string &warning) { return warning.rfind("Dropout", 0) == 0; });
  if (count("attention") > 0 && count("layer_norm") > 0 && !saysDropout)
    report.warnings.push_back("no dropout: if the model has any, it was exported in inference "
                              "mode; export in training mode to train with it");
  if (count("batch_norm") > 0)
    report.warnings.push_back("batch norm was exported in inference form; tbc trains it with the "
                              "statistics of each micro-batch over all data ranks");
}

/// Whether a glob of --freeze matches. The globs are well-formed.
static bool isFrozen(const frontend::ParameterSource &source,
                     const std::vector<std::string> &freeze) {
  return llvm::any_of(freeze, [&](const std::string &text) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
    bool matches = glob && (glob->match(source.name) || glob->match(source.displayName));
    llvm::consumeError(glob.takeError());
    return matches;
  });
}

/// Warns of NaN, and of infinite weights; notes infinite constants.
static void addNotFinite(const frontend::ImportedModel &model, CheckReport &report) {
  constexpr int64_t mostElements = int64_t(1) << 28; // 1 GiB of f32, read in about a second
  std::vector<frontend::NotFinite> faults, masks;
  for (frontend::NotFinite &tensor : frontend::notFiniteTensors(model, mostElements))
    (tensor.isFault() ? faults : masks).push_back(std::move(tensor));
  if (!faults.empty())
    report.warnings.push_back(frontend::textOf(faults) +
                              ": a loss that depends on it is never finite; export the model again "
                              "with finite numbers");
  if (!masks.empty())
    report.notes.push_back(frontend::textOf(masks));
}

static CheckedTensor describeConstant(const frontend::ConstantTensor &constant) {
  CheckedTensor tensor;
  tensor.name = constant.name;
  tensor.displayName = constant.displayName;
  tensor.dtype = kernels::name(constant.dtype);
  tensor.shape = constant.shape;
  for (int64_t size : constant.shape)
    tensor.factors += (tensor.factors.empty() ? "" : " x ") + std::to_string(size);
  tensor.reason = constant.reason;
  return tensor;
}

/// Builds the training step of `options`, as a plan does, so that what is supported can be planned.
/// `model` has its composites. A loss that does not fit its outputs is a warning,
/// because another --loss may. Errors: ModelRejected for an op without a derivative.
static Status checkStep(frontend::ImportedModel &model, const driver::StepOptions &options,
                        CheckReport &report) {
  ModuleOp raised = *model.module;
  MLIRContext &context = *raised.getContext();
  if (std::string why = driver::whyNoOtherLoss(model, options); !why.empty()) {
    report.warnings.push_back("no derivative was looked at: " + why);
    return Status::ok();
  }
  {
    driver::DiagnosticCollector diagnostics(context);
    OwningOpRef<ModuleOp> copy = cast<ModuleOp>(raised->clone());
    if (failed(driver::attachLossWithWarnings(*copy, options, report.warnings))) {
      report.warnings.push_back("--loss " + options.loss +
                                " does not fit, so no derivative was "
                                "looked at: " +
                                diagnostics.error(ErrorCode::ModelRejected, "").message);
      return Status::ok();
    }
  }
  auto step = driver::buildTrainingStep(context, options);
  return step ? Status::ok() : Status(step.error());
}

Result<CheckReport> checkModel(const std::string &path, const frontend::ImportOptions &options) {
  driver::StepOptions step;
  step.modelPath = path;
  step.import = options;
  return checkModel(step);
}

Result<CheckReport> checkModel(const driver::StepOptions &options) {
  const std::string &path = options.modelPath;
  auto context = driver::makeContext();
  Result<frontend::ImportedModel> model = frontend::importOnnx(*context, path, options.import);
  if (!model)
    return driver::importError(model.error(), path);
  if (Status status = driver::checkNames(*model, options); !status)
    return status.error();
  auto function = *model->module->getOps<func::FuncOp>().begin();
  CheckReport report;
  report.model = path;
  report.hash = model->hash;
  report.seq = model->seq;
  report.warnings = model->warnings;
  report.notes = model->notes;
  for (const frontend::ConstantTensor &constant : model->constants)
    report.constants.push_back(describeConstant(constant));
  addNotFinite(*model, report);

  driver::DiagnosticCollector diagnostics(*context);
  if (failed(driver::raiseWithWarnings(function, report.warnings)))
    return ofKind(
        Problem::CannotTrain,
        diagnostics.error(ErrorCode::ModelRejected, path + ": composites could not be raised"));
  report.flopsPerSample = countFlops(function) / double(model->batch);
  countOps(function, report);
  FactorAnalysis analysis(function);
  Block &body = function.getBody().front();
  for (auto [i, input] : llvm::enumerate(model->inputs))
    report.inputs.push_back(describeTensor(body.getArgument(i), analysis, input.name));
  for (auto [i, source] : llvm::enumerate(model->parameters)) {
    CheckedTensor tensor =
        describeTensor(body.getArgument(model->inputs.size() + i), analysis, source.name);
    tensor.displayName = source.displayName;
    tensor.isFrozen = !source.isState && isFrozen(source, options.freeze);
    int64_t elements = kernels::numElements(source.shape);
    report.weightsPresent &= source.present;
    (source.isState ? report.stateElements : report.parameterElements) += elements;
    if (!source.isState)
      report.parameterBytes += elements * kernels::byteWidth(source.dtype);
    (source.isState ? report.states : report.parameters).push_back(tensor);
  }
  for (auto [i, output] : llvm::enumerate(model->outputs))
    report.outputs.push_back(
        describeTensor(body.getTerminator()->getOperand(i), analysis, output.name));
  report.blocks = findRepeatedBlocks(report.parameters);
  addWarnings(function, report);
  if (report.parameterElements > 0)
    if (Status status = checkStep(*model, options, report); !status)
      return status.error();
  return report;
}

//===- output --------------------------------------------------------------===//

/// Groups digits. Example: 124439808 gives "124,439,808".
static std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = int64_t(text.size()) - 3; at > 0; at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

/// Formats FLOPs with a unit. Example: 2.916e+11 gives "291.6 GFLOP".
static std::string readableFlops(double flops) {
  static constexpr std::array units = {"FLOP",  "kFLOP", "MFLOP", "GFLOP",
                                       "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < units.size(); ++unit)
    flops /= 1000;
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g %s", flops, units[unit]);
  return text;
}

/// Replaces numeric components of a name by "*". Example: "h.0.ln.weight" gives "h.*.ln.weight".
static std::string withoutNumbers(const std::string &name) {
  std::string result;
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('.', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    bool isNumber = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin > 0 ? "." : "") + (isNumber ? "*" : part);
    begin = end + 1;
  }
  return result;
}

std::vector<FoldedTensors> foldTensors(const std::vector<CheckedTensor> &tensors) {
  std::vector<FoldedTensors> folded;
  std::map<std::tuple<std::string, std::string, std::string, bool, std::string>, size_t> known;
  for (const CheckedTensor &tensor : tensors) {
    std::string name = withoutNumbers(tensor.displayName);
    auto [it, isNew] = known.try_emplace(
        {name, tensor.dtype, tensor.factors, tensor.isFrozen, tensor.reason}, folded.size());
    if (isNew)
      folded.push_back({name, 0, tensor});
    ++folded[it->second].count;
  }
  return folded;
}

static void printTensors(const char *title, const std::vector<CheckedTensor> &tensors,
                         std::ostream &out) {
  if (tensors.empty())
    return;
  out << title << "\n";
  for (const FoldedTensors &folded : foldTensors(tensors)) {
    const CheckedTensor &tensor = folded.first;
    if (folded.count > 1)
      out << "  " << folded.name << " x " << folded.count;
    else
      out << "  " << tensor.displayName;
    if (folded.count == 1 && tensor.displayName != tensor.name)
      out << " (" << tensor.name << ")";
    out << "  " << tensor.dtype << "  " << (tensor.factors.empty() ? "scalar" : tensor.factors)
        << (tensor.isFrozen ? "  frozen" : "") << (tensor.reason.empty() ? "" : "  ")
        << tensor.reason << "\n";
  }
}

/// Prints the trained and the untrained tensors, one line each.
static void printRoles(const CheckReport &report, std::ostream &out) {
  auto count = [&](const char *title, const std::vector<CheckedTensor> &tensors, auto isCounted) {
    int64_t elements = 0, number = 0;
    for (const CheckedTensor &tensor : tensors)
      if (isCounted(tensor)) {
        elements += kernels::numElements(tensor.shape);
        ++number;
      }
    if (number > 0)
      out << title << grouped(elements) << " in " << number << " tensor" << (number > 1 ? "s" : "")
          << "\n";
    return number;
  };
  auto isFrozen = [](const CheckedTensor &tensor) { return tensor.isFrozen; };
  if (llvm::any_of(report.parameters, isFrozen)) {
    count("  trained  ", report.parameters, std::not_fn(isFrozen));
    count("  frozen   ", report.parameters, isFrozen);
  }
  count("constant   ", report.constants, [](const CheckedTensor &) { return true; });
}

static void printCounts(const char *title, const std::map<std::string, int64_t> &counts,
                        std::ostream &out) {
  out << title;
  const char *separator = " ";
  for (const auto &[name, count] : counts) {
    out << separator << name << " " << count;
    separator = ", ";
  }
  out << (counts.empty() ? " none\n" : "\n");
}

void printReport(const CheckReport &report, std::ostream &out) {
  out << report.model << ": supported\n"
      << "parameters " << grouped(report.parameterElements) << " in " << report.parameters.size()
      << " tensors, " << grouped(report.parameterBytes) << " bytes"
      << (report.weightsPresent ? "" : " (their data is not there)") << "\n";
  printRoles(report, out);
  if (report.stateElements > 0)
    out << "state      " << grouped(report.stateElements) << " in " << report.states.size()
        << " tensors\n";
  out << "flops      " << readableFlops(report.flopsPerSample) << " per sample, forward";
  if (report.seq > 0)
    out << ", at sequence length " << report.seq;
  if (report.composites.count("routed_experts"))
    out << ", routed experts by their top-k";
  out << "\n";
  for (const RepeatedBlock &block : report.blocks)
    out << "blocks     " << block.name << " x " << block.count << ", " << grouped(block.parameters)
        << " parameters each\n";
  printCounts("composites", report.composites, out);
  printCounts("ops       ", report.ops, out);
  printTensors("inputs", report.inputs, out);
  printTensors("outputs", report.outputs, out);
  printTensors("parameters, with the factors of their dims", report.parameters, out);
  printTensors("state", report.states, out);
  printTensors("constants, which are not trained", report.constants, out);
  for (const std::string &note : report.notes)
    out << "note: " << note << "\n";
  for (const std::string &warning : report.warnings)
    out << "warning: " << warning << "\n";
}

std::string toJson(const CheckReport &report) {
  using Json = nlohmann::ordered_json;
  auto tensors = [](const std::vector<CheckedTensor> &list) {
    Json result = Json::array();
    for (const CheckedTensor &tensor : list) {
      result.push_back({{"name", tensor.name},
                        {"display_name", tensor.displayName},
                        {"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"factors", tensor.factors}});
      if (tensor.isFrozen)
        result.back()["frozen"] = true;
      if (!tensor.reason.empty())
        result.back()["reason"] = tensor.reason;
    }
    return result;
  };
  Json blocks = Json::array();
  for (const RepeatedBlock &block : report.blocks)
    blocks.push_back(
        {{"name", block.name}, {"count", block.count}, {"parameters", block.parameters}});
  Json json{{"format", "tbc-check"},
            {"version", 1},
            {"model", report.model},
            {"hash", report.hash},
            {"seq", report.seq},
            {"parameters", report.parameterElements},
            {"parameter_bytes", report.parameterBytes},
            {"state_elements", report.stateElements},
            {"weights_present", report.weightsPresent},
            {"flops_per_sample", report.flopsPerSample},
            {"ops", report.ops},
            {"composites", report.composites},
            {"blocks", blocks},
            {"inputs", tensors(report.inputs)},
            {"outputs", tensors(report.outputs)},
            {"parameter_tensors", tensors(report.parameters)},
            {"state_tensors", tensors(report.states)},
            {"constant_tensors", tensors(report.constants)},
            {"notes", report.notes},
            {"warnings", report.warnings}};
  return json.dump(2) + "\n";
}

namespace {

struct Options {
  ModelOptions model;
  bool json = false;
};

} // namespace

void addCheckCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand(
      "check", "What is in a model: parameters, FLOPs, ops, what is unsupported");
  auto options = std::make_shared<Options>();
  addModelOptions(*command, options->model);
  command->get_option("model")->required();
  command->option_defaults()->group("Answers");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, setAction] {
    setAction([options]() -> Result<int> {
      Result<driver::StepOptions> step = toStepOptions(options->model);
      if (!step)
        return step.error();
      Result<CheckReport> report = checkModel(*step);
      if (!report)
        return report.error();
      if (options->json) {
        std::cout << toJson(*report);
        return 0;
      }
      FittedOutput fitted;
      printReport(*report, std::cout);
      return 0;
    });
  });
}

} // namespace tbc::cli

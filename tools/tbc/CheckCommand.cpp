//===- CheckCommand.cpp - tbc check -------------------------------------------===//

#include "tools/tbc/CheckCommand.h"

#include "ir/FactorAnalysis.h"
#include "ir/Tbc.h"
#include "passes/raise/RaiseComposites.h"
#include "tools/driver/Context.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/ModelOptions.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>

using namespace mlir;

namespace tbc::cli {

/// "b*1024" for a product, "(768 + 768)" for a sum; the batch factor reads "b".
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
  llvm::raw_string_ostream(tensor.dtype) << type.getElementType();
  tensor.shape.assign(type.getShape().begin(), type.getShape().end());
  for (unsigned dim = 0; dim < type.getRank(); ++dim)
    tensor.factors +=
        (dim ? " x " : "") + describeDim(analysis.dimLayout(value, dim), analysis.batchFactor());
  return tensor;
}

/// The FLOPs of the kernel classes that the convention counts.
static double countFlops(func::FuncOp function) {
  double flops = 0;
  function.walk([&](CostOpInterface op) {
    if (llvm::is_contained({"matmul", "conv", "attention", "causal_attention"},
                           op.getKernelClass()))
      flops += op.getFlops();
  });
  return flops;
}

/// Counts what works on inputs and parameters; what is made of nothing but numbers is left out.
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
  // By prefix and number: the tensors below, as text.
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
      break; // the outermost number
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

/// What matters for training and is easily overlooked.
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
    report.warnings.push_back("batch norm uses running statistics (inference form); export in "
                              "training mode to train with batch statistics");
  if (count("topk") > 0 && count("routed_experts") == 0)
    report.warnings.push_back(
        "a topk that routes to no experts that were recognised: if the model "
        "has experts, their FLOPs count literally, all experts on all tokens");
}

/// Raises composites; what the pass remarks on becomes warnings, equal remarks one.
static LogicalResult raiseWithWarnings(func::FuncOp function, CheckReport &report) {
  std::map<std::string, std::pair<std::string, int>> remarks; // the first node, how many
  ScopedDiagnosticHandler handler(function.getContext(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Remark)
      return failure();
    auto name = dyn_cast<NameLoc>(diagnostic.getLocation());
    auto &[node, count] = remarks[diagnostic.str()];
    if (count++ == 0 && name)
      node = name.getName().str();
    return success();
  });
  LogicalResult result = raiseComposites(function);
  for (const auto &[text, where] : remarks)
    report.warnings.push_back(
        "node '" + where.first + "'" +
        (where.second > 1 ? " and " + std::to_string(where.second - 1) + " more: " : ": ") + text);
  return result;
}

Result<CheckReport> checkModel(const std::string &path, const frontend::ImportOptions &options) {
  auto context = driver::makeContext();
  Result<frontend::ImportedModel> model = frontend::importOnnx(*context, path, options);
  if (!model)
    return model.error();
  auto function = *model->module->getOps<func::FuncOp>().begin();
  CheckReport report;
  report.model = path;
  report.hash = model->hash;
  report.seq = model->seq;
  report.warnings = model->warnings;

  driver::DiagnosticCollector diagnostics(*context);
  if (failed(raiseWithWarnings(function, report)))
    return diagnostics.error(ErrorCode::ModelRejected, path + ": composites could not be raised");
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
  return report;
}

//===- output --------------------------------------------------------------===//

/// 124439808 as "124,439,808".
static std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = int64_t(text.size()) - 3; at > 0; at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

static void printTensors(const char *title, const std::vector<CheckedTensor> &tensors,
                         std::ostream &out) {
  if (tensors.empty())
    return;
  out << title << "\n";
  for (const CheckedTensor &tensor : tensors) {
    out << "  " << tensor.displayName;
    if (tensor.displayName != tensor.name)
      out << " (" << tensor.name << ")";
    out << "  " << tensor.dtype << "  " << (tensor.factors.empty() ? "scalar" : tensor.factors)
        << "\n";
  }
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
  char flops[32];
  std::snprintf(flops, sizeof(flops), "%.4g", report.flopsPerSample);
  out << report.model << ": supported\n"
      << "parameters " << grouped(report.parameterElements) << " in " << report.parameters.size()
      << " tensors, " << grouped(report.parameterBytes) << " bytes"
      << (report.weightsPresent ? "" : " (their data is not there)") << "\n";
  if (report.stateElements > 0)
    out << "state      " << grouped(report.stateElements) << " in " << report.states.size()
        << " tensors\n";
  out << "flops      " << flops << " per sample, forward";
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
  for (const std::string &warning : report.warnings)
    out << "warning: " << warning << "\n";
}

std::string toJson(const CheckReport &report) {
  using Json = nlohmann::ordered_json;
  auto tensors = [](const std::vector<CheckedTensor> &list) {
    Json result = Json::array();
    for (const CheckedTensor &tensor : list)
      result.push_back({{"name", tensor.name},
                        {"display_name", tensor.displayName},
                        {"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"factors", tensor.factors}});
    return result;
  };
  Json blocks = Json::array();
  for (const RepeatedBlock &block : report.blocks)
    blocks.push_back(
        {{"name", block.name}, {"count", block.count}, {"parameters", block.parameters}});
  Json json{{"schema", "tbc.check"},
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
      Result<CheckReport> report = checkModel(step->modelPath, step->import);
      if (!report)
        return report.error();
      if (options->json)
        std::cout << toJson(*report);
      else
        printReport(*report, std::cout);
      return 0;
    });
  });
}

} // namespace tbc::cli

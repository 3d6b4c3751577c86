//===- TrainingStep.cpp - Build the training step from a model file ---------===//

#include "tools/driver/TrainingStep.h"

#include "frontend/onnx/Suggest.h"
#include "ir/Loss.h"
#include "ir/Normalization.h"
#include "ir/Rebatch.h"
#include "ir/Roles.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/decompose/PadVocabulary.h"
#include "passes/decompose/UseBatchStatistics.h"
#include "passes/layout/FoldReshapes.h"
#include "passes/layout/FoldTransposes.h"
#include "passes/layout/LiftSlices.h"
#include "passes/layout/MergeHeads.h"
#include "passes/precision/LowerPrecision.h"
#include "passes/raise/RaiseComposites.h"
#include "passes/random/UseDropout.h"
#include "passes/sequence/PlaceTokens.h"
#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "tools/driver/StepSettings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>

#include <unistd.h>

using namespace mlir;

namespace tbc::driver {

/// The batch size of a stored step: a prime, so that no other dim looks like a multiple of it.
static constexpr int64_t canonicalBatch = 97;

/// Returns a readable location: the ONNX node's name, or file:line:column.
static std::string describe(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return "node '" + name.getName().str() + "'";
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string text = describe(part); !text.empty())
        return text;
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return describe(call.getCallee());
  return "";
}

DiagnosticCollector::DiagnosticCollector(MLIRContext &context)
    : handler(&context, [this](Diagnostic &diagnostic) {
        std::string place = describe(diagnostic.getLocation());
        if (!text.empty())
          text += "\n";
        text += place.empty() ? diagnostic.str() : place + ": " + diagnostic.str();
        for (Diagnostic &note : diagnostic.getNotes())
          text += "\n  note: " + note.str();
        return success();
      }) {}

Error DiagnosticCollector::error(ErrorCode code, const std::string &fallback) const {
  return {code, text.empty() ? fallback : text};
}

/// Runs `pass`, whose remarks become `warnings`, equal ones merged.
static LogicalResult withWarnings(MLIRContext &context, std::vector<std::string> &warnings,
                                  llvm::function_ref<LogicalResult()> pass) {
  std::map<std::string, std::pair<std::string, int>> remarks; // location of the first, count
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Remark)
      return failure();
    auto &[node, count] = remarks[diagnostic.str()];
    if (count++ == 0)
      node = describe(diagnostic.getLocation());
    return success();
  });
  LogicalResult result = pass();
  for (const auto &[text, where] : remarks)
    warnings.push_back(
        where.first +
        (where.second > 1 ? " and " + std::to_string(where.second - 1) + " more: " : ": ") + text);
  return result;
}

LogicalResult raiseWithWarnings(func::FuncOp model, std::vector<std::string> &warnings) {
  return withWarnings(*model.getContext(), warnings, [&] { return raiseComposites(model); });
}

LogicalResult attachLossWithWarnings(ModuleOp module, const StepOptions &options,
                                     std::vector<std::string> &warnings) {
  return withWarnings(*module.getContext(), warnings,
                      [&] { return attachLoss(module, lossOptions(options)); });
}

/// Whether any value is f16.
static bool hasF16(func::FuncOp model) {
  auto isF16 = [](Value value) { return tensorType(value).getElementType().isF16(); };
  return llvm::any_of(model.getArguments(), isF16) ||
         llvm::any_of(model.getBody().front(),
                      [&](Operation &op) { return llvm::any_of(op.getResults(), isF16); });
}

/// Returns the narrow type of most elements of parameters, which no precision changes, or nullopt.
static std::optional<planner::Precision> narrowPrecision(func::FuncOp model) {
  double all = 0, bf16 = 0, f16 = 0; // elements
  for (BlockArgument arg : model.getArguments()) {
    auto type = tensorType(arg);
    if (argumentRole(model, arg.getArgNumber()) != TensorRole::Parameter ||
        !isa<FloatType>(type.getElementType()))
      continue;
    all += double(type.getNumElements());
    bf16 += type.getElementType().isBF16() ? double(type.getNumElements()) : 0;
    f16 += type.getElementType().isF16() ? double(type.getNumElements()) : 0;
  }
  if (bf16 > all / 2)
    return planner::Precision::BF16;
  return f16 > all / 2 ? std::optional(planner::Precision::F16) : std::nullopt;
}

/// Errors: Usage for a precision that the model cannot have, because only f32 is narrowed.
static Status checkPrecision(func::FuncOp model, planner::Precision precision) {
  const std::optional<planner::Precision> own = narrowPrecision(model);
  if (!own || *own == precision)
    return Status::ok();
  const std::string word = planner::name(*own);
  return problem(Problem::BadModelFlag,
                 "--precision " + std::string(planner::name(precision)) + ": the parameters are " +
                     word + " in the file, and only f32 is narrowed; choose --precision " + word +
                     ", or export the model in f32");
}

static LogicalResult lowerTo(func::FuncOp model, planner::Precision precision) {
  switch (precision) {
  case planner::Precision::F32:
    return success();
  case planner::Precision::BF16:
    return lowerPrecision(model, FloatType::getBF16(model.getContext()));
  case planner::Precision::F16:
    return lowerPrecision(model, FloatType::getF16(model.getContext()));
  }
  return failure();
}

/// Raises @model and sets its precision.
static LogicalResult prepareModel(TrainingStep &result) {
  ModuleOp module = *result.model.module;
  const StepOptions &options = result.options;
  auto model = module.lookupSymbol<func::FuncOp>("model");
  DropoutOptions dropout = dropoutOptions(options);
  if (!dropout.isOn)
    removeDropout(model);
  if (failed(raiseWithWarnings(model, result.model.warnings)) || failed(useBatchStatistics(model)))
    return failure();
  if (std::optional<double> factor = capacityFactor(options)) {
    auto capacities = limitExperts(model, *factor);
    if (failed(capacities))
      return failure();
    result.expertCapacities.assign(capacities->begin(), capacities->end());
  }
  foldReshapes(model);
  liftSlices(model);
  foldReshapes(model); // slices stood behind some merges
  foldTransposes(model);
  mergeHeads(model);
  if (failed(lowerTo(model, *options.precision)))
    return failure();
  if (failed(useDropout(model, dropout.seed)))
    return failure();
  placeTokens(model);
  // Autodiff relies on the types.
  return verify(module);
}

/// Errors (Usage): a glob that is malformed or matches no entry of `names`.
static Status checkGlobs(const std::string &flag, const std::vector<std::string> &globs,
                         const std::vector<std::string> &names) {
  for (const std::string &text : globs) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
    if (!glob)
      return problem(Problem::BadModelFlag, flag + ": the glob '" + text + "' is malformed: " +
                                                llvm::toString(glob.takeError()));
    if (llvm::none_of(names, [&](const std::string &name) { return glob->match(name); }))
      return problem(Problem::BadModelFlag, flag + ": the model has no parameter '" + text + "'" +
                                                frontend::suggestion(text, names));
  }
  return Status::ok();
}

/// Returns the names and module paths of the parameters.
static std::vector<std::string> parameterNames(const frontend::ImportedModel &model) {
  std::vector<std::string> names;
  for (const frontend::ParameterSource &source : model.parameters)
    if (!source.isState)
      names.insert(names.end(), {source.displayName, source.name});
  return names;
}

/// Returns those globs that match one of `names`.
static std::vector<std::string> matching(const std::string &flag,
                                         const std::vector<std::string> &globs,
                                         const std::vector<std::string> &names) {
  std::vector<std::string> kept;
  llvm::copy_if(globs, std::back_inserter(kept),
                [&](const std::string &glob) { return bool(checkGlobs(flag, {glob}, names)); });
  return kept;
}

/// Differentiates @train and builds @update.
static LogicalResult buildBackward(TrainingStep &result) {
  ModuleOp module = *result.model.module;
  AutodiffOptions autodiff;
  autodiff.freeze = matching("--freeze", result.options.freeze, parameterNames(result.model));
  autodiff.lossScale = lossScale(result.options);
  if (failed(buildTrainFunction(module, autodiff)) ||
      failed(buildUpdateFunction(module, optimizerOptions(result.options))))
    return failure();
  return verify(module);
}

/// Pads the vocabularies of `train`. A multiple from the flag may add more than 1/64; a warning
/// says where it is not kept.
static LogicalResult padAsAsked(func::FuncOp train, TrainingStep &result) {
  const bool isAsked = result.options.settings.count("pad_vocabulary") > 0;
  const int64_t multiple = vocabularyMultiple(result.options);
  auto padding = padVocabularies(train, multiple, /*isAnySize=*/isAsked);
  if (failed(padding))
    return failure();
  result.paddedVocabularies.assign(padding->padded.begin(), padding->padded.end());
  const std::string flag = "--pad-vocabulary " + std::to_string(multiple);
  if (isAsked && multiple > 1 && padding->largest == 0)
    result.model.warnings.push_back(flag + " has no effect: the model has no vocabulary");
  if (isAsked && padding->leavesLargest)
    result.model.warnings.push_back(
        flag + " leaves the vocabulary of " + std::to_string(padding->largest) +
        " as it is: a constant, an input or an op of the model goes along all of it");
  return success();
}

/// Builds @train and @update from @model.
static LogicalResult buildStep(TrainingStep &result) {
  ModuleOp module = *result.model.module;
  const StepOptions &options = result.options;
  if (failed(attachLossWithWarnings(module, options, result.model.warnings)))
    return failure();
  auto train = module.lookupSymbol<func::FuncOp>("train");
  // Decomposes ops with sums over shardable loops: batch statistics over the batch, which every
  // plan shards, and cross entropy over the vocabulary.
  auto isSummed = [](Operation *op) { return isa<BatchNormTrainOp, CrossEntropyOp>(op); };
  if (failed(decomposeComposites(train, isSummed)))
    return failure();
  if (failed(padAsAsked(train, result)))
    return failure();
  return buildBackward(result);
}

static std::string hashOf(func::FuncOp train, func::FuncOp update) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  train->print(stream);
  update->print(stream);
  return sha256Hex(stream.str());
}

/// Finds the functions of `result.model.module` and analyses them.
static LogicalResult analyse(TrainingStep &result) {
  ModuleOp module = *result.model.module;
  result.train = module.lookupSymbol<func::FuncOp>("train");
  result.update = module.lookupSymbol<func::FuncOp>("update");
  result.analysis = std::make_unique<FactorAnalysis>(result.train);
  auto step = extractStepGraph(result.train, *result.analysis, result.update);
  if (failed(step))
    return failure();
  result.step = std::move(*step);
  result.hash = hashOf(result.train, result.update);
  return success();
}

Status checkNames(const frontend::ImportedModel &model, const StepOptions &options) {
  std::vector<std::string> names = parameterNames(model);
  if (Status status = checkGlobs("--no-decay", options.noDecay, names); !status)
    return status;
  if (Status status = checkGlobs("--no-muon", options.noMuon, names); !status)
    return status;
  // Freezing a constant is allowed: it has no effect.
  for (const frontend::ConstantTensor &tensor : model.constants)
    names.insert(names.end(), {tensor.displayName, tensor.name});
  if (Status status = checkGlobs("--freeze", options.freeze, names); !status)
    return status;
  std::vector<std::string> outputs;
  for (const frontend::ModelValue &output : model.outputs)
    outputs.push_back(output.name);
  if (parseLossKind(options.loss) || llvm::is_contained(outputs, options.loss))
    return Status::ok();
  std::vector<std::string> known = outputs;
  known.insert(known.end(), {"cross-entropy", "mse"});
  return problem(Problem::BadModelFlag,
                 "--loss " + options.loss +
                     ": expected cross-entropy, mse, or an output of the model: " +
                     llvm::join(outputs, ", ") + frontend::suggestion(options.loss, known));
}

std::string whyNoOtherLoss(const frontend::ImportedModel &model, const StepOptions &options) {
  auto kind = parseLossKind(options.loss);
  if (!kind || *kind == LossKind::Output || model.outputs.empty() ||
      !model.outputs[0].shape.empty())
    return "";
  const std::string &name = model.outputs[0].name;
  return "--loss " + options.loss + ": the output '" + name +
         "' is one number, so the model computes its loss itself; train on it with --loss " + name;
}

Error importError(Error error, const std::string &path) {
  std::error_code ignored; // to open a pipe would wait for its writer
  bool isReadable =
      std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), R_OK) == 0;
  return ofKind(Problem::CannotImport,
                ofKind(isReadable ? Problem::BadModelFlag : Problem::CannotRead, std::move(error)));
}

Result<std::unique_ptr<TrainingStep>> buildTrainingStep(MLIRContext &context,
                                                        const StepOptions &options) {
  if (Status status = checkSettings(options); !status)
    return status.error();
  frontend::ImportOptions import = options.import;
  import.batch = canonicalBatch;
  auto model = frontend::importOnnx(context, options.modelPath, import);
  if (!model)
    return importError(model.error(), options.modelPath);
  return buildTrainingStep(context, std::move(*model), options);
}

Result<std::unique_ptr<TrainingStep>>
buildTrainingStep(MLIRContext &context, frontend::ImportedModel model, const StepOptions &options) {
  if (Status status = checkSettings(options); !status)
    return status.error();
  auto result = std::make_unique<TrainingStep>();
  result->options = options;
  result->model = std::move(model);
  if (Status status = checkNames(result->model, options); !status)
    return status.error();
  if (std::string why = whyNoOtherLoss(result->model, options); !why.empty())
    return problem(Problem::BadModelFlag, why);

  DiagnosticCollector diagnostics(context);
  ModuleOp module = *result->model.module;
  auto rejected = [&] {
    return ofKind(Problem::CannotTrain,
                  diagnostics.error(ErrorCode::ModelRejected,
                                    options.modelPath + ": the training step could not be built"));
  };
  auto imported = module.lookupSymbol<func::FuncOp>("model");
  if (!options.precision)
    result->options.precision = narrowPrecision(imported).value_or(
        hasF16(imported) ? planner::Precision::F16 : planner::Precision::BF16);
  if (Status status = checkPrecision(imported, *result->options.precision); !status)
    return status.error();
  if (failed(prepareModel(*result)))
    return rejected();
  if (Status status = resolveLossScale(result->options, hasF16(imported)); !status)
    return status.error();
  if (failed(buildStep(*result)))
    return rejected();
  if (failed(analyse(*result)))
    return ofKind(Problem::CannotTrain,
                  diagnostics.error(ErrorCode::ModelRejected, options.modelPath +
                                                                  ": the training step could not "
                                                                  "be analysed"));
  return result;
}

/// Returns a step with a copy of the module, without an analysis.
static std::unique_ptr<TrainingStep> copied(const TrainingStep &step) {
  auto result = std::make_unique<TrainingStep>();
  result->options = step.options;
  frontend::ImportedModel &model = result->model;
  model.module = cast<ModuleOp>(ModuleOp(*step.model.module)->clone());
  model.parameters = step.model.parameters;
  model.inputs = step.model.inputs;
  model.outputs = step.model.outputs;
  model.batch = step.model.batch;
  model.seq = step.model.seq;
  model.hash = step.model.hash;
  model.identity = step.model.identity;
  return result;
}

Result<std::unique_ptr<TrainingStep>> withSizes(const TrainingStep &step,
                                                const FactorSizes &sizes) {
  std::unique_ptr<TrainingStep> result = copied(step);
  frontend::ImportedModel &model = result->model;
  ModuleOp module = *model.module;
  DiagnosticCollector diagnostics(*module.getContext());
  auto train = module.lookupSymbol<func::FuncOp>("train");
  module.lookupSymbol("update")->erase();
  FactorAnalysis analysis(train); // of equal structure, so its factors are those of step.analysis
  if (failed(resizeFactors(train, analysis, sizes)) ||
      failed(buildUpdateFunction(module, optimizerOptions(step.options))) ||
      failed(verify(module)) || failed(analyse(*result)))
    return diagnostics.error(ErrorCode::Other, "the step could not be resized");

  // Parameters of unchanged shape keep their data and padding.
  const std::map<std::string, kernels::Shape> oldShapes = parameterShapes(step);
  const std::map<std::string, kernels::Shape> shapes = parameterShapes(*result);
  for (frontend::ParameterSource &source : model.parameters)
    if (auto it = shapes.find(source.name);
        it != shapes.end() && it->second != oldShapes.at(source.name)) {
      source.shape = it->second;
      source.present = false;
    }
  return result;
}

/// Erases the arguments of @train without a use, of those that were used.
static void eraseUnusedArguments(func::FuncOp train, const llvm::DenseSet<Value> &used) {
  llvm::BitVector unused(train.getNumArguments());
  for (BlockArgument arg : train.getArguments())
    unused[arg.getArgNumber()] = arg.use_empty() && used.contains(arg);
  train.eraseArguments(unused);
}

Result<std::unique_ptr<TrainingStep>> withForward(const TrainingStep &step,
                                                  llvm::function_ref<void(func::FuncOp)> change) {
  std::unique_ptr<TrainingStep> result = copied(step);
  frontend::ImportedModel &model = result->model;
  ModuleOp module = *model.module;
  DiagnosticCollector diagnostics(*module.getContext());
  for (const char *name : {"model", "update"})
    if (Operation *function = module.lookupSymbol(name))
      function->erase();
  auto train = module.lookupSymbol<func::FuncOp>("train");
  eraseBackward(train);
  llvm::DenseSet<Value> used;
  for (BlockArgument arg : train.getArguments())
    if (!arg.use_empty())
      used.insert(arg);
  change(train);
  eraseUnusedArguments(train, used);

  llvm::StringSet<> arguments;
  for (unsigned i = 0; i < train.getNumArguments(); ++i)
    if (auto name = train.getArgAttrOfType<StringAttr>(i, kNameAttr))
      arguments.insert(name.getValue());
  const std::map<std::string, kernels::Shape> oldShapes = parameterShapes(step);
  llvm::erase_if(model.parameters, [&](const frontend::ParameterSource &source) {
    return oldShapes.count(source.name) && !arguments.contains(source.name);
  });
  std::vector<std::string> &noDecay = result->options.noDecay;
  noDecay = matching("--no-decay", noDecay, parameterNames(model));
  std::vector<std::string> &noMuon = result->options.noMuon;
  noMuon = matching("--no-muon", noMuon, parameterNames(model));
  if (failed(buildBackward(*result)) || failed(analyse(*result)))
    return diagnostics.error(ErrorCode::Other, "the step could not be differentiated again");
  return result;
}

std::map<std::string, kernels::Shape> parameterShapes(const TrainingStep &step) {
  std::map<std::string, kernels::Shape> shapes;
  func::FuncOp train = step.train;
  for (BlockArgument arg : train.getArguments())
    if (auto name = train.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr))
      shapes[name.getValue().str()].assign(tensorType(arg).getShape().begin(),
                                           tensorType(arg).getShape().end());
  return shapes;
}

} // namespace tbc::driver

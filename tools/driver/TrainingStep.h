//===- TrainingStep.h - Build the training step from a model file -----------===//

#ifndef TBC_TOOLS_DRIVER_TRAININGSTEP_H
#define TBC_TOOLS_DRIVER_TRAININGSTEP_H

#include "frontend/onnx/Import.h"
#include "ir/FactorAnalysis.h"
#include "ir/Resize.h"
#include "ir/StepGraph.h"
#include "passes/decompose/LimitExperts.h"
#include "passes/decompose/PadVocabulary.h"
#include "planner/plan/Job.h"
#include "runtime/abi/Status.h"

#include "mlir/IR/MLIRContext.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::driver {

struct StepOptions {
  std::string modelPath;
  frontend::ImportOptions import;
  std::string loss =
      "cross-entropy"; // cross-entropy, mse, or the name of an output that is the loss
  planner::Optimizer optimizer = planner::Optimizer::AdamW;
  /// Unset: bf16, or f16 for a model in f16.
  std::optional<planner::Precision> precision = planner::Precision::F32;
  std::vector<std::string> freeze;        // globs of parameter names
  std::vector<std::string> noDecay;       // globs of parameters without weight decay
  std::vector<std::string> noMuon;        // globs of matrices that muon leaves to AdamW
  std::map<std::string, double> settings; // by name; see StepSettings.h
};

/// The step of a model: @train and @update in `model.module`, with the analyses used by planner and
/// partitioner. Its sizes are those of `model.batch` samples; the graph is rebatched for each plan.
struct TrainingStep {
  StepOptions options; // with precision and loss scale resolved
  frontend::ImportedModel model;
  mlir::func::FuncOp train, update;
  std::unique_ptr<FactorAnalysis> analysis;
  StepGraph step;
  /// SHA-256 of the text of both functions.
  std::string hash;
  std::vector<PaddedVocabulary> paddedVocabularies;
  /// Set by --capacity-factor.
  std::vector<ExpertCapacity> expertCapacities;
};

/// Returns an error of importing the model at `path` with its kind.
Error importError(Error error, const std::string &path);

/// Imports, raises, attaches the loss, differentiates and builds the update. Errors: ModelRejected
/// with the diagnostics of the failed phase; Usage for a wrong setting.
Result<std::unique_ptr<TrainingStep>> buildTrainingStep(mlir::MLIRContext &context,
                                                        const StepOptions &options);
/// The same for a model in memory; ignores `options.modelPath` and `options.import`.
Result<std::unique_ptr<TrainingStep>> buildTrainingStep(mlir::MLIRContext &context,
                                                        frontend::ImportedModel model,
                                                        const StepOptions &options);

/// Checks the names in the options against the model: the loss output, and the globs of frozen
/// parameters and those without weight decay. Errors: Usage, with a suggestion.
Status checkNames(const frontend::ImportedModel &model, const StepOptions &options);

/// Returns why no loss can be attached to an output that already is one, and how to train on it;
/// empty where one can.
std::string whyNoOtherLoss(const frontend::ImportedModel &model, const StepOptions &options);

/// Returns the same step with other factor sizes (factors of `step.analysis`). Parameters with a
/// new shape have no data. Errors: Other, with the op that the sizes do not fit.
Result<std::unique_ptr<TrainingStep>> withSizes(const TrainingStep &step, const FactorSizes &sizes);

/// Returns the step of another forward. `change` edits a copy of @train without its backward, which
/// is then differentiated again. Parameters and states that lose all uses, and globs that matched
/// only those, are dropped. Without a change the step has the same hash. Errors: Other, with the op
/// that cannot be differentiated.
Result<std::unique_ptr<TrainingStep>>
withForward(const TrainingStep &step, llvm::function_ref<void(mlir::func::FuncOp)> change);

/// Returns the shapes of parameters, states and inputs by name. A parameter with a padded
/// vocabulary is larger than in the file; the padding is zeros at the end of each dim.
std::map<std::string, kernels::Shape> parameterShapes(const TrainingStep &step);

/// Raises composites. Reasons why some stay decomposed become warnings, equal ones merged. Example:
/// "node 'scores' and 23 more: this attention stays decomposed: ...".
mlir::LogicalResult raiseWithWarnings(mlir::func::FuncOp model, std::vector<std::string> &warnings);

/// Attaches the loss of `options` to @model of `module`. A loss that takes its batch as one
/// micro-batch becomes a warning.
mlir::LogicalResult attachLossWithWarnings(mlir::ModuleOp module, const StepOptions &options,
                                           std::vector<std::string> &warnings);

/// Collects the diagnostics emitted during its lifetime.
class DiagnosticCollector {
public:
  explicit DiagnosticCollector(mlir::MLIRContext &context);
  /// Returns an error of this code with all collected diagnostics; `fallback` if there are none.
  Error error(ErrorCode code, const std::string &fallback) const;

private:
  std::string text;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_TRAININGSTEP_H

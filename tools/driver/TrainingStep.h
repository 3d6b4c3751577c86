//===- TrainingStep.h - From a model file to the whole training step --------===//

#ifndef TBC_TOOLS_DRIVER_TRAININGSTEP_H
#define TBC_TOOLS_DRIVER_TRAININGSTEP_H

#include "frontend/onnx/Import.h"
#include "ir/FactorAnalysis.h"
#include "ir/Resize.h"
#include "ir/StepGraph.h"
#include "passes/decompose/LimitExperts.h"
#include "passes/decompose/PadVocabulary.h"
#include "runtime/abi/Status.h"

#include "mlir/IR/MLIRContext.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tbc::driver {

struct StepOptions {
  std::string modelPath;
  frontend::ImportOptions import;
  std::string loss =
      "cross-entropy";              // cross-entropy, mse, or the name of an output that is the loss
  std::string optimizer = "adamw";  // adamw, adam, sgd, sgd-momentum
  std::string precision = "f32";    // f32, bf16, f16; empty: bf16, or f16 for a model in f16
  std::vector<std::string> freeze;  // globs of parameter names
  std::vector<std::string> noDecay; // globs of parameters whose weights do not decay
  std::map<std::string, double> settings; // by name; see StepSettings.h
};

/// The step of a model: @train and @update in `model.module`, and what planner and partitioner ask
/// of them. Sizes are those of `model.batch` samples, whatever the plan; the graph is rebatched for
/// a plan.
struct TrainingStep {
  StepOptions options; // with precision and loss scale written out
  frontend::ImportedModel model;
  mlir::func::FuncOp train, update;
  std::unique_ptr<FactorAnalysis> analysis;
  StepGraph step;
  /// SHA-256 of the two functions' text.
  std::string hash;
  std::vector<PaddedVocabulary> paddedVocabularies;
  /// With --capacity-factor.
  std::vector<ExpertCapacity> expertCapacities;
};

/// Imports, raises, attaches the loss, differentiates and builds the update.
/// Errors: ModelRejected with the diagnostics of whatever refused; Usage for a wrong setting.
Result<std::unique_ptr<TrainingStep>> buildTrainingStep(mlir::MLIRContext &context,
                                                        const StepOptions &options);
/// The same for a model in memory; `options.modelPath` and `options.import` are not read.
Result<std::unique_ptr<TrainingStep>> buildTrainingStep(mlir::MLIRContext &context,
                                                        frontend::ImportedModel model,
                                                        const StepOptions &options);

/// Whether the model has what the options name: outputs for the loss, parameters to freeze and
/// those whose weights do not decay. Errors: Usage, with a suggestion.
Status checkNames(const frontend::ImportedModel &model, const StepOptions &options);

/// The same step with factors of other sizes (factors of `step.analysis`). Its parameters of
/// another shape have no data.
/// Errors: Other, with the op at which the sizes do not fit.
Result<std::unique_ptr<TrainingStep>> withSizes(const TrainingStep &step, const FactorSizes &sizes);

/// The shapes of parameters, states and inputs by name: of a parameter whose vocabulary is padded,
/// larger than that in the file, with zeros behind each dim.
std::map<std::string, kernels::Shape> parameterShapes(const TrainingStep &step);

/// Collects the diagnostics emitted while it lives.
class DiagnosticCollector {
public:
  explicit DiagnosticCollector(mlir::MLIRContext &context);
  /// An error of this code with everything that was emitted; `fallback` if nothing was.
  Error error(ErrorCode code, const std::string &fallback) const;

private:
  std::string text;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_TRAININGSTEP_H

//===- TrainedModel.h - Write a checkpoint's weights into the model ---------===//

#ifndef TBC_TOOLS_DRIVER_TRAINEDMODEL_H
#define TBC_TOOLS_DRIVER_TRAINEDMODEL_H

#include "frontend/onnx/Import.h"
#include "runtime/checkpoint/Checkpoint.h"

namespace tbc::driver {

/// Two files: an ONNX model, and its external weights.
struct TrainedModel {
  std::string model;
  std::string data; // empty: all weights are in the model
};

/// Returns the trained model: the original with the checkpoint's weights. Weights have the model's
/// types and come from master weights if the step kept them; padding rows of a vocabulary are
/// dropped. Tied initializers (`options.ties`, or tied in the file) get the same weights.
///
/// `dataName` is the name of the second file, beside the model. It is used if weights take more
/// than `inlineBytes`, since an ONNX file is limited to 2 GiB.
///
/// Errors: ModelRejected, for the model; CheckpointUnreadable; Usage, naming the parameter, if the
/// checkpoint is of another model or was computed in residues.
Result<TrainedModel> trainedModel(const std::string &modelPath,
                                  const frontend::ImportOptions &options,
                                  checkpoint::Checkpoint &checkpoint, const std::string &dataName,
                                  int64_t inlineBytes = int64_t(1) << 30);

/// Returns a parameter or state of a checkpoint in the shape and type of `source`, from its master
/// weights if there are any; no value for a state absent from the step. Errors: Usage, if the
/// checkpoint has none or one of another shape; CheckpointUnreadable.
Result<kernels::Tensor> weightOf(checkpoint::Checkpoint &checkpoint,
                                 const frontend::ParameterSource &source);

/// Returns the transpose of a matrix; `shape` is that of the result.
kernels::Tensor transposed(const kernels::Tensor &tensor, const kernels::Shape &shape);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_TRAINEDMODEL_H

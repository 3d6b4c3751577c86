//===- TrainedModel.h - A checkpoint's weights in the model -----------------===//

#ifndef TBC_TOOLS_DRIVER_TRAINEDMODEL_H
#define TBC_TOOLS_DRIVER_TRAINEDMODEL_H

#include "frontend/onnx/Import.h"
#include "runtime/checkpoint/Checkpoint.h"

namespace tbc::driver {

/// Two files: an ONNX model, and the weights that are not in it.
struct TrainedModel {
  std::string model;
  std::string data; // empty: all are in the model
};

/// The model that was trained, as it was but for its weights, which are those of the checkpoint: in
/// the types of the model, master weights where the step kept them, without the rows that pad a
/// vocabulary. Initializers that are tied to another (`options.ties`, or the file says so) follow
/// it. `dataName` is what the second file will be called beside the model; it is used where weights
/// take more than `inlineBytes`, since an ONNX file cannot have 2 GiB.
///
/// Errors: ModelRejected, for the model; CheckpointUnreadable; Usage, naming the parameter, where
/// the checkpoint is of another model, or was computed in residues.
Result<TrainedModel> trainedModel(const std::string &modelPath,
                                  const frontend::ImportOptions &options,
                                  checkpoint::Checkpoint &checkpoint, const std::string &dataName,
                                  int64_t inlineBytes = int64_t(1) << 30);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_TRAINEDMODEL_H

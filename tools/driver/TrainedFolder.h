//===- TrainedFolder.h - Trained weights in the form of pretrained ones -----===//

#ifndef TBC_TOOLS_DRIVER_TRAINEDFOLDER_H
#define TBC_TOOLS_DRIVER_TRAINEDFOLDER_H

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/train/Manifest.h"

#include <string>

namespace tbc::driver {

/// Writes the folder `output`, which must be empty or absent, as a copy of `original` with the
/// weights of `checkpoint`: the inverse of --init-weights.
///
/// - `original`: a .safetensors file, an index, or a folder, as train::Pretrained reads it.
/// - Files, names, shapes and element types are those of `original`. Weights come from master
///   weights if the step kept them; padding rows are dropped.
/// - Tensors that no parameter takes are copied, and so are the files that describe the model
///   (config.json, tokenizers) if `original` is a folder.
///
/// Returns the number of tensors that were trained, and of all. Errors: Usage, naming file or
/// tensor, if `original` or the checkpoint is of another model; CheckpointUnreadable; Other, if the
/// folder cannot be written.
struct FolderCounts {
  size_t trained = 0, all = 0;
};
Result<FolderCounts> writeTrainedFolder(const std::string &original,
                                        const train::Manifest &manifest,
                                        checkpoint::Checkpoint &checkpoint,
                                        const std::string &output);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_TRAINEDFOLDER_H

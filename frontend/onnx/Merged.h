//===- Merged.h - Equal initializers that an exporter made one -------------===//

#ifndef TBC_FRONTEND_ONNX_MERGED_H
#define TBC_FRONTEND_ONNX_MERGED_H

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Model.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Undoes what exporters do to parameters that are equal when they are exported, as the ones and
/// zeros of fresh norms and biases are: one initializer stands for all of them, and would be
/// trained as one. Gives the readers in each module an initializer of their own, with the same
/// data.
///
/// An initializer is split if it is a vector of equal numbers in the model file or beside it, every
/// reader takes it as a factor or term of a norm, a convolution or a product, and the file says of
/// every reader in which module it is. A module that runs twice stays one reader.
///
/// Example: LayerNormalization nodes "/b.0/ln1/..", "/b.0/ln2/.." that both read "b.0.ln1.weight";
/// the second then reads "b.0.ln2.weight".
///
/// Changes `model.proto`, so that a model that is written out has them too. Returns a sentence for
/// each initializer that was split.
std::vector<std::string> splitMerged(Model &model, const ImportOptions &options);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MERGED_H

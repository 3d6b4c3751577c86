//===- Merged.h - Split equal initializers merged by an exporter -----------===//

#ifndef TBC_FRONTEND_ONNX_MERGED_H
#define TBC_FRONTEND_ONNX_MERGED_H

#include "frontend/onnx/ImportedModel.h"
#include "frontend/onnx/Model.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Undoes the merging of equal parameters by exporters. Fresh norms and biases are all ones or
/// zeros, so one initializer stands for all of them and would be trained as one. Gives the readers
/// in each module their own initializer with the same data.
///
/// An initializer is split if all of these hold:
///   - It is a vector of equal numbers, in the model file or beside it.
///   - Every reader uses it as a factor or term of a norm, a convolution or a matmul.
///   - The file tells the module of every reader. A module that runs twice stays one reader.
///
/// Example: LayerNormalization nodes "/b.0/ln1/..", "/b.0/ln2/.." both read "b.0.ln1.weight"; the
/// second then reads "b.0.ln2.weight".
///
/// Changes `model.proto`, so written models have the split too. Returns a sentence for each split
/// initializer.
std::vector<std::string> splitMerged(Model &model, const ImportOptions &options);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MERGED_H

//===- Import.h - From an ONNX file to a module of tbc ops -----------------===//

#ifndef TBC_FRONTEND_ONNX_IMPORT_H
#define TBC_FRONTEND_ONNX_IMPORT_H

#include "frontend/onnx/ImportedModel.h"
#include "runtime/abi/Status.h"

#include <string>

namespace tbc::frontend {

/// Imports `path`. Rejects (ErrorCode::ModelRejected) malformed and unsupported models, with the
/// file and byte, or the nodes, and the next step.
Result<ImportedModel> importOnnx(mlir::MLIRContext &context, const std::string &path,
                                 const ImportOptions &options);

/// The file with a parameter's data, as the import opened it. Errors: ModelRejected if it did not
/// exist.
Result<data::MappedFile> openDataOf(const ParameterSource &source);

/// Reads one tensor from that file.
Result<kernels::Tensor> loadParameter(const ParameterSource &source, kernels::Arith arith);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_IMPORT_H

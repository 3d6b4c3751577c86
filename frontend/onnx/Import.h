//===- Import.h - From an ONNX file to a module of tbc ops -----------------===//

#ifndef TBC_FRONTEND_ONNX_IMPORT_H
#define TBC_FRONTEND_ONNX_IMPORT_H

#include "frontend/onnx/MappedFile.h"
#include "runtime/abi/Status.h"
#include "runtime/kernels/Tensor.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::frontend {

struct ImportOptions {
  /// Samples per execution of the function (the micro-batch); 0 = the model's own if it is fixed,
  /// else 2.
  int64_t batch = 0;
  /// Sequence length; -1 = the length of the position table, else 4096.
  int64_t seq = -1;
  /// Sizes of other symbolic dims, by name.
  std::map<std::string, int64_t> dims;
  /// Inputs to hold constant: "ones" or "zeros". "input" keeps an input that is held constant by
  /// default (attention masks at one, token types at zero).
  std::map<std::string, std::string> fix;
  /// Inputs to hold constant at given elements; integers as int64_t, floats as double (Arith::F64).
  std::map<std::string, kernels::Tensor> known;
  /// Takes every input as it is: no dim is the batch, and no input is held constant by default. For
  /// programs that evaluate a model and do not train it.
  bool fixedShapes = false;
  /// "A=B" or "A=B^T": initializer A is parameter B, or its transpose; see Ties.h.
  std::vector<std::string> ties;
  /// Globs of initializers (names or display names) that are constants, and of those that are
  /// parameters, whatever they look like; see Roles.h.
  std::vector<std::string> constants, parameters;
  /// A directory whose files may be external data even as hard links or symbolic links; empty:
  /// none.
  std::string externalDataRoot;
};

/// Where the bytes of one initializer lie. Weights are never copied.
struct ParameterSource {
  enum class Encoding {
    /// Little-endian elements.
    Raw,
    /// One varint per element that holds its bits (16-bit floats in `int32_data`).
    Varint,
  };

  /// The initializer's name, and its module path where the file tells it.
  std::string name, displayName;
  /// The exporter stored the transpose of the module's parameter: the weight of torch.nn.Linear as
  /// the right operand of a MatMul.
  bool isTransposed = false;
  /// Running statistics and other tensors that the optimizer leaves alone.
  bool isState = false;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  std::string file;
  int64_t offset = 0, bytes = 0;
  Encoding encoding = Encoding::Raw;
  /// Whether the file is there. A model without its weights can be planned but not run.
  bool present = false;
  /// The file as the import opened it. Whoever reads the data while the model lives reads it here:
  /// what stands at the path may be exchanged.
  std::optional<MappedFile> opened;
  /// The permission under which an external file was named; see ImportOptions.
  bool isExternal = false;
  std::string directory, location, externalDataRoot;
};

/// A float initializer that is not trained and not state: where its elements matter they are in the
/// function, as a constant.
struct ConstantTensor {
  std::string name, displayName;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  /// Why it is one, as the end of a sentence: "hides keys of an attention".
  std::string reason;
};

/// A graph input or output.
struct ModelValue {
  std::string name;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  /// Which dim is the batch; -1 if none.
  int64_t batchDim = -1;
};

/// The module holds one function
///     @model(inputs..., params..., state...) -> (outputs..., new state...)
/// whose arguments carry tbc.role (input|param|state), tbc.name, tbc.display_name, and inputs
/// tbc.batch_dim; results carry tbc.name, new state tbc.role = "state" and the name of the state it
/// replaces.
struct ImportedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// One per param and state argument, in their order.
  std::vector<ParameterSource> parameters;
  std::vector<ModelValue> inputs, outputs;
  int64_t batch = 0;
  /// The sequence length; 0 if the model has none.
  int64_t seq = 0;
  /// What is a constant, in the order of the file.
  std::vector<ConstantTensor> constants;
  std::vector<std::string> warnings;
  /// What was understood and is worth knowing, but asks for nothing.
  std::vector<std::string> notes;
  /// SHA-256 of the graph without documentation strings and weights, in hexadecimal.
  std::string hash;
  /// Which model it is, whatever its weights (identityOf).
  std::string identity;
};

/// Imports `path`. Rejects (ErrorCode::ModelRejected) whatever is malformed or not supported,
/// naming the file and byte, or the nodes, and what to do.
Result<ImportedModel> importOnnx(mlir::MLIRContext &context, const std::string &path,
                                 const ImportOptions &options);

/// The file that holds a parameter's data, as the import opened it. Errors: ModelRejected, it was
/// not there.
Result<MappedFile> openDataOf(const ParameterSource &source);

/// Reads one tensor from that file.
Result<kernels::Tensor> loadParameter(const ParameterSource &source, kernels::Arith arith);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_IMPORT_H

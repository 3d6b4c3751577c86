//===- ImportedModel.h - Options and result of an import ------------------===//

#ifndef TBC_FRONTEND_ONNX_IMPORTEDMODEL_H
#define TBC_FRONTEND_ONNX_IMPORTEDMODEL_H

#include "frontend/onnx/DeviceAnnotations.h"
#include "runtime/data/MappedFile.h"
#include "runtime/kernels/Tensor.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::frontend {

struct ImportOptions {
  /// Reads multi-device annotations. A plan that is there already needs none.
  bool readAnnotations = false;
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
  /// Imports every input as it is: no dim is the batch, and no input is held constant by default.
  /// For programs that only evaluate a model.
  bool fixedShapes = false;
  /// "A=B" or "A=B^T": initializer A is parameter B, or its transpose; see Ties.h.
  std::vector<std::string> ties;
  /// Globs of initializers (names or display names) that are constants or parameters, against all
  /// other evidence; see Roles.h.
  std::vector<std::string> constants, parameters;
  /// Values that are constants for the gradient: "VALUE" or "VALUE@NODE", both globs; see Detach.h.
  std::vector<std::string> detached;
  /// A directory whose files may be external data even as hard or symbolic links; empty: no
  /// directory.
  std::string externalDataRoot;
};

/// The location of one initializer's bytes. Weights are never copied.
struct ParameterSource {
  enum class Encoding {
    /// Little-endian elements.
    Raw,
    /// One varint per element that holds its bits (16-bit floats in `int32_data`).
    Varint,
  };

  /// The initializer's name, and its module path where the file tells it.
  std::string name, displayName;
  /// The exporter stored the module's parameter transposed. Example: torch.nn.Linear's weight as
  /// the right operand of a MatMul.
  bool isTransposed = false;
  /// Running statistics and other tensors without an optimizer.
  bool isState = false;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  std::string file;
  int64_t offset = 0, bytes = 0;
  Encoding encoding = Encoding::Raw;
  /// Whether the file exists. A model without its weights can be planned but not run.
  bool present = false;
  /// The file as opened by the import. Read the data from it while the model lives: the file at the
  /// path may have changed.
  std::optional<data::MappedFile> opened;
  /// The permission under which an external file was named; see ImportOptions.
  bool isExternal = false;
  std::string directory, location, externalDataRoot;
};

/// A float initializer that is neither trained nor state. If an op reads its elements, they are a
/// constant of the function.
struct ConstantTensor {
  std::string name, displayName;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  /// The reason, as the end of a sentence. Example: "hides keys of an attention".
  std::string reason;
};

/// A graph input or output.
struct ModelValue {
  std::string name;
  kernels::DType dtype = kernels::DType::F32;
  kernels::Shape shape;
  /// The dim of the batch; -1 without one.
  int64_t batchDim = -1;
};

/// The module holds one function
///     @model(inputs..., params..., state...) -> (outputs..., new state...)
/// Its arguments carry tbc.role (input|param|state), tbc.name, tbc.display_name, and inputs
/// tbc.batch_dim. Results carry tbc.name; new state carries tbc.role = #tbc.role<state> and the
/// name of the replaced state.
struct ImportedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// One per param and state argument, in their order.
  std::vector<ParameterSource> parameters;
  std::vector<ModelValue> inputs, outputs;
  int64_t batch = 0;
  /// The sequence length; 0 if the model has none.
  int64_t seq = 0;
  /// The constants, in the order of the file.
  std::vector<ConstantTensor> constants;
  std::vector<std::string> warnings;
  /// Remarks that need no action of the user.
  std::vector<std::string> notes;
  /// SHA-256 of the graph without documentation strings and weights, in hexadecimal.
  std::string hash;
  /// The model's identity without its weights (identityOf).
  std::string identity;
  DeviceAnnotations annotations;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_IMPORTEDMODEL_H

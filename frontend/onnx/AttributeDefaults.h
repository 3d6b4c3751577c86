//===- AttributeDefaults.h - Defaults of ONNX attributes -------------------===//

#ifndef TBC_FRONTEND_ONNX_ATTRIBUTEDEFAULTS_H
#define TBC_FRONTEND_ONNX_ATTRIBUTEDEFAULTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace onnx {
class AttributeProto;
} // namespace onnx

namespace tbc::frontend {

/// The default of one attribute in the operator sets from `since` up to but without `until`; 0
/// means that the newest set still has it. `text` is the default as text; elements of lists are
/// joined by commas. Example: {"", "Softmax", "axis", 1, 13, "1"}.
struct AttributeDefault {
  const char *domain, *type, *name; // domain "" is the standard set
  int64_t since, until;
  const char *text;
};

/// All defaults. Sources: the schemas of the onnx package; for com.microsoft those of onnxruntime.
llvm::ArrayRef<AttributeDefault> attributeDefaults();

/// Returns true if `attribute` has the default of its op in operator set `opset`, so a node means
/// the same without it. Returns false for attributes without a default, graphs and tensors.
bool hasDefault(llvm::StringRef domain, llvm::StringRef type, int64_t opset,
                const onnx::AttributeProto &attribute);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ATTRIBUTEDEFAULTS_H

//===- AttributeDefaults.cpp - Defaults of ONNX attributes -----------------===//

#include "frontend/onnx/AttributeDefaults.h"

#include "onnx/onnx.pb.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdio>
#include <optional>

namespace tbc::frontend {

llvm::ArrayRef<AttributeDefault> attributeDefaults() {
  static constexpr AttributeDefault defaults[] = {
#include "frontend/onnx/AttributeDefaults.inc"
      // From get_all_operator_schema() of onnxruntime 1.32.0, for the ops with an importer.
      {"com.microsoft", "Attention", "unidirectional", 1, 0, "0"},
      {"com.microsoft", "FusedMatMul", "alpha", 1, 0, "1"},
      {"com.microsoft", "FusedMatMul", "transA", 1, 0, "0"},
      {"com.microsoft", "FusedMatMul", "transB", 1, 0, "0"},
      {"com.microsoft", "FusedMatMul", "transBatchA", 1, 0, "0"},
      {"com.microsoft", "FusedMatMul", "transBatchB", 1, 0, "0"},
      {"com.microsoft", "GroupQueryAttention", "causal", 1, 0, "1"},
      {"com.microsoft", "GroupQueryAttention", "k_quant_type", 1, 0, "NONE"},
      {"com.microsoft", "GroupQueryAttention", "local_window_size", 1, 0, "-1"},
      {"com.microsoft", "GroupQueryAttention", "qk_norm_epsilon", 1, 0, "9.99999997e-07"},
      {"com.microsoft", "GroupQueryAttention", "qk_output", 1, 0, "0"},
      {"com.microsoft", "GroupQueryAttention", "sliding_window_cache", 1, 0, "0"},
      {"com.microsoft", "GroupQueryAttention", "smooth_softmax", 1, 0, "-1"},
      {"com.microsoft", "GroupQueryAttention", "v_quant_type", 1, 0, "NONE"},
      {"com.microsoft", "MultiHeadAttention", "unidirectional", 1, 0, "0"},
      {"com.microsoft", "QuickGelu", "alpha", 1, 0, "1.70200002"},
      {"com.microsoft", "SkipLayerNormalization", "epsilon", 1, 0, "9.99999996e-13"},
      {"com.microsoft", "SkipSimplifiedLayerNormalization", "epsilon", 1, 0, "9.99999996e-13"},
  };
  return defaults;
}

/// Returns a float with the digits that make it unique. Example: "9.99999975e-06" for 1e-5.
static std::string textOf(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", double(value));
  return text;
}

/// Returns an attribute as text, in the form of AttributeDefault::text; nullopt for graphs and
/// tensors. Old exporters declare no type, so the fields are asked as well.
static std::optional<std::string> textOf(const onnx::AttributeProto &attribute) {
  auto joined = [](const auto &list, auto asText) {
    std::vector<std::string> texts;
    for (const auto &element : list)
      texts.push_back(asText(element));
    return llvm::join(texts, ",");
  };
  using Proto = onnx::AttributeProto;
  Proto::AttributeType type = attribute.type();
  if (type == Proto::UNDEFINED)
    type = attribute.has_i()          ? Proto::INT
           : attribute.has_f()        ? Proto::FLOAT
           : attribute.has_s()        ? Proto::STRING
           : attribute.ints_size()    ? Proto::INTS
           : attribute.floats_size()  ? Proto::FLOATS
           : attribute.strings_size() ? Proto::STRINGS
                                      : Proto::UNDEFINED;
  switch (type) {
  case Proto::INT:
    return std::to_string(attribute.i());
  case Proto::FLOAT:
    return textOf(attribute.f());
  case Proto::STRING:
    return attribute.s();
  case Proto::INTS:
    return joined(attribute.ints(), [](int64_t value) { return std::to_string(value); });
  case Proto::FLOATS:
    return joined(attribute.floats(), [](float value) { return textOf(value); });
  case Proto::STRINGS:
    return joined(attribute.strings(), [](const std::string &value) { return value; });
  default:
    return std::nullopt;
  }
}

bool hasDefault(llvm::StringRef domain, llvm::StringRef type, int64_t opset,
                const onnx::AttributeProto &attribute) {
  if (domain == "ai.onnx")
    domain = "";
  const AttributeDefault *found = llvm::find_if(attributeDefaults(), [&](const auto &row) {
    return domain == row.domain && type == row.type && attribute.name() == row.name &&
           opset >= row.since && (row.until == 0 || opset < row.until);
  });
  return found != attributeDefaults().end() && textOf(attribute) == std::string(found->text);
}

} // namespace tbc::frontend

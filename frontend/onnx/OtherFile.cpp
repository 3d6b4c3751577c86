//===- OtherFile.cpp - Files that people take for models -------------------===//

#include "frontend/onnx/OtherFile.h"

#include <cstdint>

namespace tbc::frontend {

/// Whether a JSON header follows its length, as in a safetensors file.
static bool isSafetensors(std::string_view bytes) {
  constexpr size_t prefix = 8;
  if (bytes.size() <= prefix || bytes[prefix] != '{')
    return false;
  uint64_t length = 0;
  for (size_t i = prefix; i-- > 0;)
    length = length << 8 | uint8_t(bytes[i]);
  return length > 0 && length <= bytes.size() - prefix;
}

std::string otherKindOf(std::string_view bytes) {
  constexpr size_t searched = 4096; // bytes in which a JSON file shows its kind
  auto begins = [&](std::string_view word) { return bytes.substr(0, word.size()) == word; };
  auto has = [&](std::string_view word) {
    return bytes.substr(0, searched).find(word) != std::string_view::npos;
  };
  if (begins("PK\x03\x04"))
    return "it is a zip file, as PyTorch saves weights; torch.onnx.export writes the model";
  if (isSafetensors(bytes))
    return "it is a safetensors file, which has weights alone; torch.onnx.export writes the model";
  if (begins("version https://git-lfs"))
    return "it is a pointer of Git LFS; git lfs pull fetches the file";
  if (begins("<"))
    return "it is HTML or XML; did a download fail?";
  if (!begins("{") && !begins("["))
    return "";
  if (has("\"accumulation\"") && has("\"alternatives\""))
    return "it is a plan; tbc explain reads it, and tbc plan takes the model";
  if (has("\"model_type\""))
    return "it is a configuration of transformers; tbc new --from writes a model of it";
  return "it is JSON";
}

} // namespace tbc::frontend

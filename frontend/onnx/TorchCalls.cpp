//===- TorchCalls.cpp - The calls in PyTorch that nodes come from ---------===//

#include "frontend/onnx/TorchCalls.h"

#include "frontend/onnx/Scan.h"

#include "llvm/ADT/StringExtras.h"

namespace tbc::frontend {

/// Returns the values that a call reads. Example: {"detach", "y"} of "(%detach, [%y, 2])".
static std::vector<std::string> valuesOf(llvm::StringRef arguments) {
  std::vector<std::string> names;
  for (size_t at = arguments.find('%'); at != llvm::StringRef::npos; at = arguments.find('%', at)) {
    llvm::StringRef name =
        arguments.drop_front(++at).take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
    names.push_back(name.str());
  }
  return names;
}

void forEachTorchCall(
    const onnx::NodeProto &node,
    llvm::function_ref<void(const std::string &, const std::vector<std::string> &)> visit) {
  for (const onnx::StringStringEntryProto &entry : node.metadata_props())
    if (entry.key() == kTorchCallKey)
      visit(entry.value(), valuesOf(llvm::StringRef(entry.value()).split("](args = (").second));
}

bool isTorchResultOf(llvm::StringRef op, llvm::StringRef name) {
  return name.consume_front(op) && name.ltrim('_').find_if_not(llvm::isDigit) == name.npos;
}

} // namespace tbc::frontend

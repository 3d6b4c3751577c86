//===- CustomFunctions.cpp - torch.autograd.Function in a file ------------===//

#include "frontend/onnx/CustomFunctions.h"

#include "frontend/onnx/Scan.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <map>

namespace tbc::frontend {

/// Returns X if a line calls X.apply() and X begins with a capital, as classes do; else "".
static llvm::StringRef appliedClass(llvm::StringRef line) {
  llvm::StringRef before = line.split(kApplyCall).first;
  if (before.size() == line.size())
    return "";
  llvm::StringRef name =
      before.take_back(before.size() - (before.find_last_not_of(
                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                            "0123456789_") +
                                        1));
  return !name.empty() && llvm::isUpper(name[0]) ? name : "";
}

/// Returns the innermost custom function of a stack trace; else "". Below its call is its forward.
static llvm::StringRef functionOf(llvm::StringRef trace) {
  llvm::SmallVector<llvm::StringRef> lines;
  trace.split(lines, '\n');
  llvm::StringRef found;
  for (size_t i = 0; i + 1 < lines.size(); ++i)
    if (llvm::StringRef name = appliedClass(lines[i]);
        !name.empty() && lines[i + 1].rtrim().ends_with(", in forward"))
      found = name;
  return found;
}

std::vector<std::string> customFunctionWarnings(const Model &model) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const GraphNode &node : model.nodes)
    for (const onnx::StringStringEntryProto &entry : node.proto->metadata_props())
      if (entry.key() == kStackTraceKey)
        if (llvm::StringRef name = functionOf(entry.value()); !name.empty())
          nodes[name.str()].push_back(node.name);
  std::vector<std::string> result;
  for (const auto &[name, list] : nodes)
    result.push_back(
        "node '" + list[0] + "'" +
        (list.size() > 1 ? " and " + std::to_string(list.size() - 1) + " more" : "") +
        ": the model computes this in " + name +
        ".apply(), a torch.autograd.Function; if its backward is not the derivative of "
        "its forward, training differs from the module's, as the file has the forward "
        "alone; export the model with its plain ops in place of the function");
  return result;
}

} // namespace tbc::frontend

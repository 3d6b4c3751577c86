//===- ModulePath.cpp - Module path of a node ------------------------------===//

#include "frontend/onnx/ModulePath.h"

namespace tbc::frontend {

std::vector<std::string> listedStrings(const std::string &text) {
  std::vector<std::string> strings;
  for (size_t begin = text.find_first_of("'\""); begin != std::string::npos;) {
    size_t end = text.find(text[begin], begin + 1);
    if (end == std::string::npos)
      break;
    strings.push_back(text.substr(begin + 1, end - begin - 1));
    begin = text.find_first_of("'\"", end + 1);
  }
  return strings;
}

namespace {

constexpr char kOutsideOfModules[] = "_empty_nn_module_stack_from_metadata_hook";

/// The names in ": Model/model.layers.0: torch.nn.Linear/linear: aten.linear.default".
std::vector<std::string> scopesOfNamespace(const std::string &text) {
  std::vector<std::string> scopes;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('/', begin), text.size());
    std::string scope = text.substr(begin, end - begin);
    scopes.push_back(scope.substr(0, scope.find(": ")));
    begin = end + 1;
  }
  return scopes;
}

/// Returns the module path written by torch's newer exporter, in two forms: the last name but one
/// is the path of the innermost module from the root. Nodes outside of all modules have a hook
/// instead.
std::string pathFromMetadata(const onnx::NodeProto &node) {
  std::string path;
  for (const onnx::StringStringEntryProto &entry : node.metadata_props()) {
    bool isList = entry.key() == "pkg.torch.onnx.name_scopes";
    if (!isList && (entry.key() != "namespace" || !path.empty()))
      continue;
    std::vector<std::string> scopes =
        isList ? listedStrings(entry.value()) : scopesOfNamespace(entry.value());
    if (scopes.size() >= 2 && scopes[scopes.size() - 2] != kOutsideOfModules)
      path = scopes[scopes.size() - 2];
  }
  return path;
}

/// Returns the module path in a node name of torch's older exporter, or of an inlined function's
/// node. Example: "/layer1/layer1.0/conv1/Conv" is in "layer1.0.conv1".
std::string pathFromName(const std::string &name) {
  std::vector<std::string> parts;
  size_t begin = !name.empty() && name[0] == '/' ? 1 : 0;
  for (size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1) {
    std::string part = name.substr(begin, end - begin);
    if (!parts.empty() && part.rfind(parts.back() + ".", 0) == 0)
      parts.pop_back();
    parts.push_back(part);
  }
  std::string path;
  for (const std::string &part : parts)
    path += (path.empty() ? "" : ".") + part;
  return path;
}

} // namespace

std::string modulePath(const GraphNode &node) {
  std::string path = pathFromMetadata(*node.proto);
  return path.empty() ? pathFromName(node.name) : path;
}

} // namespace tbc::frontend

//===- DetachedReads.cpp - Reads of values that PyTorch detaches -----------===//

#include "frontend/onnx/DetachedReads.h"

#include "frontend/onnx/TorchCalls.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

namespace tbc::frontend {

/// Whether `name` is one that PyTorch gives to the results of detach: detach, detach_1, detach__2.
static bool isDetachName(const std::string &name) { return isTorchResultOf("detach", name); }

/// Whether the names of two values of PyTorch are numbers of one op. Example: relu_1 and relu_3.
static bool areOfOneOp(llvm::StringRef a, llvm::StringRef b) {
  auto opOf = [](llvm::StringRef name) {
    llvm::StringRef op = name.rtrim("0123456789");
    return op.size() < name.size() && op.ends_with("_") ? op.drop_back() : name;
  };
  return a != b && opOf(a) == opOf(b);
}

DetachedReads::DetachedReads(const Model &model, std::set<const onnx::NodeProto *> noGrad)
    : noGrad(std::move(noGrad)) {
  for (const onnx::ValueInfoProto *input : model.inputs)
    values[input->name()] = nullptr;
  for (const auto &entry : model.initializers)
    values[entry.first] = nullptr;
  for (const GraphNode &node : model.nodes) {
    for (const std::string &output : node.proto->output())
      values[output] = node.proto;
    auto keep = [&](const std::string &text, const std::vector<std::string> &arguments) {
      if (llvm::any_of(arguments, isDetachName))
        calls[node.proto] = {text, arguments};
    };
    forEachTorchCall(*node.proto, keep);
  }
  if (!calls.empty() || !this->noGrad.empty())
    findJoined(model);
}

void DetachedReads::findJoined(const Model &model) {
  std::set<std::string> wanted;
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node) {
    bool isJoined = llvm::any_of(node->proto->output(), [&](const std::string &output) {
      return wanted.count(output) != 0;
    });
    if (isJoined) {
      joined.insert(node->proto);
      wanted.insert(node->proto->input().begin(), node->proto->input().end());
    }
    auto want = [&](const std::string &, const std::vector<std::string> &arguments) {
      for (const std::string &argument : arguments)
        if (!values.count(argument))
          for (const std::string &input : node->proto->input())
            if (areOfOneOp(argument, input))
              wanted.insert(input);
    };
    forEachTorchCall(*node->proto, want);
  }
}

bool DetachedReads::isDetached(const std::string &argument) const {
  return isDetachName(argument) && !values.count(argument);
}

std::vector<unsigned> DetachedReads::byPlace(const onnx::NodeProto &node, const Call &call) const {
  std::vector<unsigned> inputs;
  if (int(call.arguments.size()) != node.input_size())
    return {};
  for (auto [i, argument] : llvm::enumerate(call.arguments)) {
    if (isDetached(argument))
      inputs.push_back(unsigned(i));
    else if (values.count(argument) && argument != node.input(int(i)))
      return {};
  }
  return inputs;
}

std::vector<unsigned> DetachedReads::ofNoGrad(const GraphNode &node,
                                              llvm::function_ref<bool(unsigned)> hasGradient) {
  std::vector<unsigned> inputs;
  for (auto [i, name] : llvm::enumerate(node.proto->input())) {
    auto value = values.find(name);
    const onnx::NodeProto *producer = value == values.end() ? nullptr : value->second;
    const bool isInside = noGrad.count(producer) && !joined.count(producer);
    if (!isInside && hasGradient(unsigned(i)))
      inputs.push_back(unsigned(i));
  }
  if (!joined.count(node.proto))
    return inputs;
  if (!inputs.empty())
    joinedNoGrad.push_back(node.name);
  return {};
}

std::vector<unsigned> DetachedReads::of(const GraphNode &node,
                                        llvm::function_ref<bool(unsigned)> hasGradient) {
  if (noGrad.count(node.proto))
    return ofNoGrad(node, hasGradient);
  auto it = calls.find(node.proto);
  if (it == calls.end())
    return {};
  const Call &call = it->second;
  std::set<std::string> detached, named;
  for (const std::string &argument : call.arguments)
    (isDetached(argument) ? detached : named).insert(argument);
  if (detached.empty())
    return {};

  // One call may be several nodes; only those that read values of other calls read its arguments.
  std::vector<unsigned> outer, unnamed;
  for (auto [i, name] : llvm::enumerate(node.proto->input())) {
    auto value = values.find(name);
    if (value == values.end())
      continue;
    auto made = calls.find(value->second);
    if (value->second && made != calls.end() && made->second.text == call.text)
      continue;
    outer.push_back(unsigned(i));
    if (!named.count(name))
      unnamed.push_back(unsigned(i));
  }
  if (outer.empty())
    return {};
  auto isUnclear = [&] {
    if (llvm::any_of(outer, hasGradient))
      for (const std::string &argument : detached)
        unclear.insert({argument, node.name});
    return std::vector<unsigned>();
  };
  if (joined.count(node.proto))
    return isUnclear();
  std::vector<unsigned> inputs;
  if (outer.size() == size_t(node.proto->input_size()))
    inputs = byPlace(*node.proto, call);
  if (inputs.empty()) {
    std::set<std::string> sources;
    for (unsigned i : unnamed)
      if (hasGradient(i))
        sources.insert(node.proto->input(int(i)));
    if (unnamed.empty() || sources.size() > detached.size())
      return isUnclear();
    inputs = unnamed;
  }
  found.insert(detached.begin(), detached.end());
  llvm::erase_if(inputs, [&](unsigned i) { return !hasGradient(i); });
  if (!inputs.empty())
    readers.push_back(node.name);
  return inputs;
}

std::vector<std::string> DetachedReads::warnings() const {
  std::vector<std::string> result;
  auto others = [](size_t count) {
    return count > 1 ? " and " + std::to_string(count - 1) + " more" : std::string();
  };
  if (!readers.empty())
    result.push_back("node '" + readers[0] + "'" + others(readers.size()) +
                     ": PyTorch detaches values that are read there, as the metadata says, so no "
                     "gradient passes");
  if (!joinedNoGrad.empty())
    result.push_back("node '" + joinedNoGrad[0] + "'" + others(joinedNoGrad.size()) +
                     ": PyTorch computes this under torch.no_grad(), and the exporter may have "
                     "joined it with an equal op outside, so gradients pass; export with "
                     "optimize=False, which keeps both");
  std::vector<std::string> nodes;
  for (const auto &[value, node] : unclear)
    if (!found.count(value))
      nodes.push_back(node);
  if (!nodes.empty())
    result.push_back("node '" + nodes[0] + "'" + others(nodes.size()) +
                     ": PyTorch detaches a value that is read there, and the file does not say "
                     "which, so gradients pass; export with optimize=False, which keeps detach(), "
                     "or give --detach 'VALUE@NODE'");
  return result;
}

} // namespace tbc::frontend

//===- NoGradNodes.cpp - Nodes that PyTorch runs under no_grad -------------===//

#include "frontend/onnx/NoGradNodes.h"

#include "frontend/onnx/Scan.h"
#include "frontend/onnx/TorchCalls.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace tbc::frontend {

namespace {

/// A line of a function that the exporter made.
struct GeneratedLine {
  std::string function;        // its number
  std::set<std::string> names; // in the arguments
};

enum class Region { Unclear, NoGrad, Autocast };

/// The functions that the exporter made, by their numbers, and the lines of their nodes.
struct GeneratedFunctions {
  std::map<std::string, Region> regions;
  std::map<const onnx::NodeProto *, GeneratedLine> lines;
};

} // namespace

/// Returns {"x", "w"} of "linear_1 = torch.ops.aten.linear.default(x, w);  x = ..".
static std::set<std::string> namesIn(llvm::StringRef line) {
  std::set<std::string> names;
  auto isPart = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  for (line = line.split(';').first.split('(').second; !line.empty();) {
    line = line.drop_until(isPart);
    llvm::StringRef name = line.take_while(isPart);
    if (!name.empty())
      names.insert(name.str());
    line = line.drop_front(name.size());
  }
  return names;
}

/// Returns the line of `node` if its stack trace begins in a generated function, which calls others
/// of these at most.
static std::optional<GeneratedLine> generatedLine(const onnx::NodeProto &node) {
  for (const onnx::StringStringEntryProto &entry : node.metadata_props()) {
    llvm::StringRef trace = entry.value();
    if (entry.key() != kStackTraceKey || !trace.consume_front(kGeneratedFrame))
      continue;
    auto [frame, rest] = trace.split('\n');
    auto [line, inner] = rest.split('\n');
    if (inner.empty() || inner.ltrim().starts_with(kGeneratedFrame))
      return GeneratedLine{frame.take_while(llvm::isDigit).str(), namesIn(line)};
  }
  return std::nullopt;
}

/// Whether `name` is one that autocast's function gives its arguments. Example: arg8_1.
static bool isArgumentName(llvm::StringRef name) {
  if (!name.consume_front("arg"))
    return false;
  auto [number, version] = name.split('_');
  auto isNumber = [](llvm::StringRef text) {
    return !text.empty() && llvm::all_of(text, llvm::isDigit);
  };
  return isNumber(number) && isNumber(version);
}

/// Whether PyTorch names a parameter, a buffer or a constant of the module so.
static bool isTensorOfModule(llvm::StringRef name) {
  return name.starts_with("p_") || name.starts_with("b_") || name.starts_with("c_");
}

/// Returns what a line tells of its function. `inputs`: of the model.
static Region regionOf(const onnx::NodeProto &node, const GeneratedLine &line,
                       const std::set<std::string> &inputs) {
  if (llvm::any_of(line.names, isArgumentName))
    return Region::Autocast;
  bool namesInput = false;
  forEachTorchCall(node, [&](const std::string &, const std::vector<std::string> &reads) {
    for (const std::string &name : reads)
      namesInput |= line.names.count(name) && (isTensorOfModule(name) || inputs.count(name));
  });
  return namesInput ? Region::NoGrad : Region::Unclear;
}

/// Whether nodes of regions under no_grad make all outputs. No model computes its loss so: a
/// reentrant torch.utils.checkpoint leaves gradients off in what the exporter traces after it.
static bool endsWithoutGradients(const Model &model, const GeneratedFunctions &functions) {
  std::map<std::string, const onnx::NodeProto *> producers;
  for (const GraphNode &node : model.nodes)
    for (const std::string &output : node.proto->output())
      producers[output] = node.proto;
  return llvm::all_of(model.graph().output(), [&](const onnx::ValueInfoProto &output) {
    auto line = functions.lines.find(producers[output.name()]);
    return line != functions.lines.end() &&
           functions.regions.at(line->second.function) == Region::NoGrad;
  });
}

static GeneratedFunctions generatedFunctions(const Model &model) {
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto *input : model.inputs)
    inputs.insert(input->name());
  GeneratedFunctions result;
  bool isWhole = true; // all nodes are in such functions: the module was one
  for (const GraphNode &node : model.nodes) {
    std::optional<GeneratedLine> line = generatedLine(*node.proto);
    if (!line) {
      forEachTorchCall(*node.proto, [&](auto &, auto &) { isWhole = false; });
      continue;
    }
    Region &region = result.regions.try_emplace(line->function, Region::Unclear).first->second;
    if (region != Region::Autocast)
      region = std::max(region, regionOf(*node.proto, *line, inputs));
    result.lines[node.proto] = std::move(*line);
  }
  if (isWhole)
    return {};
  if (endsWithoutGradients(model, result))
    for (auto &[function, region] : result.regions)
      if (region == Region::NoGrad)
        region = Region::Unclear;
  return result;
}

/// Returns the nodes of functions that are a `region`, if a gradient could pass them.
static std::set<const onnx::NodeProto *> nodesIn(Region region, const Model &model,
                                                 const Parameters &parameters) {
  const GeneratedFunctions functions = generatedFunctions(model);
  if (functions.lines.empty())
    return {};
  std::set<const onnx::NodeProto *> result;
  std::set<std::string> trained; // the parameters, and values computed from them
  for (const ParameterSource &parameter : parameters.params)
    trained.insert(parameter.name);
  for (const Tie &tie : parameters.ties)
    trained.insert(tie.name);
  for (const GraphNode &node : model.nodes) {
    auto isTrained = [&](const std::string &name) { return trained.count(name) != 0; };
    if (llvm::none_of(node.proto->input(), isTrained) && llvm::none_of(node.captures, isTrained))
      continue;
    trained.insert(node.proto->output().begin(), node.proto->output().end());
    auto line = functions.lines.find(node.proto);
    if (line != functions.lines.end() && functions.regions.at(line->second.function) == region)
      result.insert(node.proto);
  }
  return result;
}

std::set<const onnx::NodeProto *> noGradNodes(const Model &model, const Parameters &parameters) {
  return nodesIn(Region::NoGrad, model, parameters);
}

std::vector<std::string> noGradWarnings(const Model &model, const Parameters &parameters) {
  std::vector<std::string> result;
  for (const auto &[region, text] :
       {std::pair(Region::NoGrad, ": PyTorch computes this under torch.no_grad(), as the stack "
                                  "traces in the file say, so no gradient passes"),
        std::pair(Region::Unclear,
                  ": PyTorch computes this under torch.no_grad(), torch.autocast() or a reentrant "
                  "torch.utils.checkpoint, and the file does not say which; gradients pass. Under "
                  "no_grad, write detach() as well, or give --detach 'VALUE'")}) {
    const std::set<const onnx::NodeProto *> found = nodesIn(region, model, parameters);
    auto first =
        llvm::find_if(model.nodes, [&](const GraphNode &node) { return found.count(node.proto); });
    if (first != model.nodes.end())
      result.push_back(
          "node '" + first->name + "'" +
          (found.size() > 1 ? " and " + std::to_string(found.size() - 1) + " more" : "") + text);
  }
  return result;
}

} // namespace tbc::frontend

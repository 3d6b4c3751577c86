//===- Merged.cpp - Split equal initializers merged by an exporter ---------===//

#include "frontend/onnx/Merged.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/ModulePath.h"
#include "frontend/onnx/Sources.h"
#include "frontend/onnx/Users.h"

#include <algorithm>
#include <unordered_map>

namespace tbc::frontend {

namespace {

/// Returns the module of a node without the suffix of its second call. Example: "norm_1" and
/// "norm@1" are both "norm".
std::string moduleOf(const GraphNode &node, const std::set<std::string> &modules) {
  std::string path = modulePath(node);
  size_t digits = path.find_last_not_of("0123456789");
  if (digits == std::string::npos || digits + 1 == path.size())
    return path;
  std::string first = path.substr(0, digits);
  if (path[digits] == '@')
    return first;
  return path[digits] == '_' && modules.count(first) ? first : path;
}

/// The readers in one module: nodes of the graph, with the input of each.
struct Part {
  std::string module;
  std::vector<std::pair<onnx::NodeProto *, int>> readers;
  bool isTerm = false; // a bias rather than a factor
};

class Splitter {
public:
  Splitter(Model &model, const ImportOptions &options)
      : model(model), users(model), sources(model, options) {
    for (onnx::NodeProto &node : *model.proto->mutable_graph()->mutable_node())
      own[&node] = &node;
    forEachNode(model.nodes, [&](const GraphNode &node) {
      modules.insert(modulePath(node));
      names.insert(node.proto->output().begin(), node.proto->output().end());
    });
    for (const auto &[name, tensor] : model.initializers)
      names.insert(name);
    // A tensor of the module that is in the file under another name keeps its own.
    for (const onnx::ValueInfoProto &info : model.graph().value_info())
      for (const onnx::StringStringEntryProto &entry : info.metadata_props())
        if (entry.key() == kFoldedFromKey) {
          const std::vector<std::string> list = listedStrings(entry.value());
          names.insert(list.begin(), list.end());
          if (std::all_of(list.begin(), list.end(), isGeneratedName))
            computed.insert(info.name());
        }
    for (const onnx::ValueInfoProto *input : model.inputs)
      names.insert(input->name());
  }

  std::vector<std::string> run();

private:
  std::vector<Part> partsOf(const std::string &name, const Shape &shape,
                            std::set<const onnx::NodeProto *> &copies);
  bool addReaders(const std::string &value, const Shape &shape, std::vector<Part> &parts,
                  std::set<const onnx::NodeProto *> &copies);
  std::string nameFor(const Part &part, const std::string &whole);
  void remove(const std::set<const onnx::NodeProto *> &copies);

  Model &model;
  Users users;
  Sources sources;
  /// The nodes of the main graph; these may be changed.
  std::unordered_map<const onnx::NodeProto *, onnx::NodeProto *> own;
  std::set<std::string> modules, names;
  /// Tensors that the exporter computed from its own values alone, such as a scale of scores.
  std::set<std::string> computed;
};

/// Adds the readers of `value`, also those behind plain copies, to the parts of their modules.
/// Returns false if a reader prevents the split.
bool Splitter::addReaders(const std::string &value, const Shape &shape, std::vector<Part> &parts,
                          std::set<const onnx::NodeProto *> &copies) {
  if (users.isOutput(value))
    return false;
  for (const Use &use : users.of(value)) {
    auto node = own.find(use.node->proto);
    if (node == own.end() || use.input < 0)
      return false;
    if (use.node->proto->op_type() == "Identity" && use.node->proto->output_size() == 1) {
      copies.insert(use.node->proto);
      if (!addReaders(use.node->proto->output(0), shape, parts, copies))
        return false;
      continue;
    }
    UseKind kind = users.kindOf(use, shape);
    std::string module = moduleOf(*use.node, modules);
    if (kind == UseKind::Other || module.empty())
      return false;
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const Part &other) { return other.module == module; });
    if (part == parts.end())
      part = parts.insert(part, Part{module, {}, false});
    part->readers.push_back({node->second, use.input});
    bool isOperand = kind == UseKind::Weight;
    part->isTerm |= kind == UseKind::Bias || (isOperand && use.input > 1);
  }
  return true;
}

std::vector<Part> Splitter::partsOf(const std::string &name, const Shape &shape,
                                    std::set<const onnx::NodeProto *> &copies) {
  std::vector<Part> parts;
  auto isLong = [](int64_t size) { return size != 1; };
  if (shape.empty() || std::count_if(shape.begin(), shape.end(), isLong) > 1 ||
      !addReaders(name, shape, parts, copies) || parts.size() < 2)
    return {};
  // The initializer stays with the module in its name.
  auto owner = std::find_if(parts.begin(), parts.end(), [&](const Part &part) {
    return name.rfind(part.module + ".", 0) == 0;
  });
  if (owner != parts.end())
    std::rotate(parts.begin(), owner, owner + 1);
  return parts;
}

/// Returns a free name in the module of `part`, with the last word of the whole's name if it came
/// from a module.
std::string Splitter::nameFor(const Part &part, const std::string &whole) {
  size_t dot = whole.rfind('.');
  std::string word = isGeneratedName(whole) || dot == std::string::npos
                         ? (part.isTerm ? "bias" : "weight")
                         : whole.substr(dot + 1);
  std::string name = part.module + "." + word;
  for (int number = 2; !names.insert(name).second; ++number)
    name = part.module + "." + word + "_" + std::to_string(number);
  return name;
}

/// Removes copies without readers from the graph.
void Splitter::remove(const std::set<const onnx::NodeProto *> &copies) {
  auto isCopy = [&](const GraphNode &node) { return copies.count(node.proto) != 0; };
  model.nodes.erase(std::remove_if(model.nodes.begin(), model.nodes.end(), isCopy),
                    model.nodes.end());
  auto &nodes = *model.proto->mutable_graph()->mutable_node();
  int kept = 0;
  for (int i = 0; i < nodes.size(); ++i)
    if (!copies.count(&nodes.Get(i)))
      nodes.SwapElements(kept++, i);
  nodes.DeleteSubrange(kept, nodes.size() - kept);
}

std::vector<std::string> Splitter::run() {
  std::vector<std::string> notes;
  std::set<const onnx::NodeProto *> removed;
  std::vector<const onnx::TensorProto *> whole;
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    if (!computed.count(tensor.name()) &&
        kernels::isFloat(dtypeOfOnnx(tensor.data_type(), "initializer '" + tensor.name() + "'")))
      whole.push_back(&tensor);
  for (const onnx::TensorProto *tensor : whole) {
    const std::string name = tensor->name();
    std::set<const onnx::NodeProto *> copies;
    std::vector<Part> parts = partsOf(name, shapeOfTensor(*tensor), copies);
    if (parts.empty() || !isUniform(sources.locateIfPacked(*tensor)))
      continue;
    for (const onnx::NodeProto *copy : copies) // frees their names
      names.erase(copy->output(0));
    std::string list;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i < 3)
        list += (i ? ", " : "") + parts[i].module;
      std::string own = name;
      if (i > 0) {
        own = nameFor(parts[i], name);
        onnx::TensorProto &added = *model.proto->mutable_graph()->add_initializer();
        added = *tensor;
        added.set_name(own);
        model.initializers[own] = &added;
        model.initializerOrder.push_back(&added);
        model.splitFrom[own] = name;
      }
      for (auto [node, input] : parts[i].readers)
        node->set_input(input, own);
    }
    removed.insert(copies.begin(), copies.end());
    notes.push_back("'" + name + "' is read by " + std::to_string(parts.size()) + " modules (" +
                    list + (parts.size() > 3 ? " ..." : "") +
                    "): the exporter merged equal tensors, and they are trained apart");
  }
  if (!removed.empty())
    remove(removed);
  return notes;
}

} // namespace

std::vector<std::string> splitMerged(Model &model, const ImportOptions &options) {
  return Splitter(model, options).run();
}

} // namespace tbc::frontend

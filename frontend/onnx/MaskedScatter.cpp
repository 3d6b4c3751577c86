//===- MaskedScatter.cpp - Features put at masked places -------------------===//

#include "frontend/onnx/MaskedScatter.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

namespace {

class Joiner {
public:
  explicit Joiner(Model &model) : model(model) {
    for (const GraphNode &node : model.nodes)
      for (const std::string &output : node.proto->output())
        producers[output] = node.proto;
  }

  void run();

private:
  const onnx::NodeProto *producer(const std::string &value, const char *type) const;
  bool dependsOn(const std::string &value, const onnx::NodeProto &node) const;
  std::optional<std::string> sourceOf(const onnx::NodeProto &scatter,
                                      const onnx::NodeProto &selection) const;
  const onnx::NodeProto *selectionOf(const std::string &places) const;
  std::string maskOf(const onnx::NodeProto &selection, const std::string &data) const;
  bool isNumber(const std::string &value) const;
  bool isZero(const std::string &value) const;
  std::optional<std::string> onAllPlaces(const std::string &value, const GraphNode &scatter);
  std::optional<std::string> assignedOnAllPlaces(const GraphNode &scatter);
  void join(GraphNode &node);
  bool isOfSelection(const onnx::NodeProto &node) const;
  void removeUnread();

  Model &model;
  std::map<std::string, const onnx::NodeProto *> producers;
  /// Copies of nodes for the scatter that is joined, by the value that the original makes.
  std::vector<GraphNode> added;
  std::map<std::string, std::string> copies;
  /// The NonZero nodes of the elements that it takes: one for each in files that are not optimized.
  std::set<const onnx::NodeProto *> selected;
  /// The NonZero nodes of joined scatters.
  std::set<const onnx::NodeProto *> selections;
};

/// Returns the node of type `type` that makes `value`, or nullptr.
const onnx::NodeProto *Joiner::producer(const std::string &value, const char *type) const {
  auto it = producers.find(value);
  bool isOfType =
      it != producers.end() && it->second->domain().empty() && it->second->op_type() == type;
  return isOfType ? it->second : nullptr;
}

bool Joiner::dependsOn(const std::string &value, const onnx::NodeProto &node) const {
  std::vector<std::string> pending{value};
  std::set<std::string> seen{value};
  while (!pending.empty()) {
    auto it = producers.find(pending.back());
    pending.pop_back();
    if (it == producers.end())
      continue;
    if (it->second == &node)
      return true;
    for (const std::string &input : it->second->input())
      if (seen.insert(input).second)
        pending.push_back(input);
  }
  return false;
}

/// Returns the tensor whose rows `scatter` takes in order; nullopt if it takes rows that depend on
/// those that `selection` found.
std::optional<std::string> Joiner::sourceOf(const onnx::NodeProto &scatter,
                                            const onnx::NodeProto &selection) const {
  const std::string &updates = scatter.input(2);
  if (!dependsOn(updates, selection))
    return updates;
  const onnx::NodeProto *slice = producer(updates, "Slice");
  if (!slice || slice->input_size() < 3 || dependsOn(slice->input(0), selection) ||
      !producer(slice->input(0), "Reshape"))
    return std::nullopt;
  return slice->input(0);
}

/// Returns the NonZero whose elements `places` lists; null if it is no such list.
const onnx::NodeProto *Joiner::selectionOf(const std::string &places) const {
  const onnx::NodeProto *list = producer(places, "Transpose");
  return list ? producer(list->input(0), "NonZero") : nullptr;
}

/// Returns the mask of `selection`, without an expansion to the shape of `data`, which the mask of
/// an assignment to `data` has already.
std::string Joiner::maskOf(const onnx::NodeProto &selection, const std::string &data) const {
  const std::string &mask = selection.input(0);
  const onnx::NodeProto *expand = producer(mask, "Expand");
  const onnx::NodeProto *shape = expand ? producer(expand->input(1), "Shape") : nullptr;
  const bool isWhole = shape && shape->input(0) == data &&
                       llvm::all_of(shape->attribute(), [](const onnx::AttributeProto &attribute) {
                         return attribute.name() == "start" && attribute.i() == 0;
                       });
  return isWhole ? expand->input(0) : mask;
}

bool Joiner::isNumber(const std::string &value) const {
  auto it = model.initializers.find(value);
  return it != model.initializers.end() &&
         llvm::all_of(it->second->dims(), [](int64_t size) { return size == 1; });
}

/// Whether `value` is the number 0 in i64, as PyTorch writes the begin and the dim of a slice.
bool Joiner::isZero(const std::string &value) const {
  if (!isNumber(value))
    return false;
  const onnx::TensorProto &number = *model.initializers.find(value)->second;
  if (number.data_type() != onnx::TensorProto::INT64)
    return false;
  return number.int64_data_size() == 1 ? number.int64_data(0) == 0
                                       : number.raw_data() == std::string(sizeof(int64_t), '\0');
}

/// Returns the value that has, at each place, what `value` has for a selected one; nullopt unless
/// it is computed from elements at the places of `scatter` and numbers, each element by itself.
/// Ops without a finite slope everywhere are left out: a gradient of 0 times infinity is no number.
std::optional<std::string> Joiner::onAllPlaces(const std::string &value, const GraphNode &scatter) {
  static const std::set<std::string> elementwise = {"Abs", "Add",  "Cast",     "Max",
                                                    "Min", "Mul",  "Neg",      "Relu",
                                                    "Sub", "Tanh", "Identity", "Sigmoid"};
  if (auto it = copies.find(value); it != copies.end() || isNumber(value))
    return it != copies.end() ? it->second : value;
  auto it = producers.find(value);
  if (it == producers.end() || !it->second->domain().empty())
    return std::nullopt;
  const onnx::NodeProto &node = *it->second;
  const std::string &type = node.op_type();
  if (type == "GatherND") {
    bool isPlain = llvm::all_of(
        node.attribute(), [](const onnx::AttributeProto &attribute) { return attribute.i() == 0; });
    const onnx::NodeProto *selection = selectionOf(node.input(1));
    const std::string &data = scatter.proto->input(0);
    if (!isPlain || !selection ||
        maskOf(*selection, data) != maskOf(*selectionOf(scatter.proto->input(1)), data))
      return std::nullopt;
    selected.insert(selection);
    return copies[value] = node.input(0);
  }
  // The list of places keeps its elements, because the scatter takes one for each. So a slice of
  // the list from its begin has all of them.
  const bool isOfList =
      type == "Slice" && node.input_size() == 4 && isZero(node.input(1)) && isZero(node.input(3));
  if (type == "Expand" || type == "Reshape" || isOfList)
    return onAllPlaces(node.input(0), scatter);
  if (!elementwise.count(type))
    return std::nullopt;
  onnx::NodeProto copy = node;
  for (std::string &input : *copy.mutable_input()) {
    std::optional<std::string> whole = onAllPlaces(input, scatter);
    if (!whole)
      return std::nullopt;
    input = *whole;
  }
  copy.set_name(scatter.name + "/" + node.name());
  copy.set_output(0, scatter.proto->output(0) + "/" + value);
  added.push_back({&model.ownNodes.emplace_back(copy), copy.name(), scatter.opset, {}, {}});
  return copies[value] = copy.output(0);
}

/// Returns the updates of `scatter` for all places, if they are computed from selected elements.
std::optional<std::string> Joiner::assignedOnAllPlaces(const GraphNode &scatter) {
  copies.clear();
  selected.clear();
  std::optional<std::string> updates = onAllPlaces(scatter.proto->input(2), scatter);
  if (!updates || copies.empty())
    added.clear();
  return copies.empty() ? std::nullopt : updates;
}

void Joiner::join(GraphNode &node) {
  const onnx::NodeProto &scatter = *node.proto;
  bool isPlain =
      scatter.domain().empty() && scatter.op_type() == "ScatterND" && scatter.input_size() == 3 &&
      llvm::all_of(scatter.attribute(),
                   [](const onnx::AttributeProto &attribute) { return attribute.s() == "none"; });
  const onnx::NodeProto *selection = isPlain ? selectionOf(scatter.input(1)) : nullptr;
  std::optional<std::string> source;
  if (selection)
    source = assignedOnAllPlaces(node);
  bool isAssigned = source.has_value();
  if (selection && !isAssigned)
    source = sourceOf(scatter, *selection);
  if (!source)
    return;
  onnx::NodeProto &joined = model.ownNodes.emplace_back();
  joined.set_domain("tbc");
  joined.set_op_type(isAssigned ? "MaskedAssign" : "MaskedScatter");
  joined.set_name(scatter.name());
  for (const std::string &input : {scatter.input(0), selection->input(0), *source})
    joined.add_input(input);
  joined.add_output(scatter.output(0));
  *joined.mutable_metadata_props() = scatter.metadata_props();
  node.proto = &joined;
  producers[joined.output(0)] = &joined;
  selections.insert(selection);
  if (isAssigned)
    selections.insert(selected.begin(), selected.end());
}

/// Returns true if `node` is the NonZero of a joined scatter, or reads its result.
bool Joiner::isOfSelection(const onnx::NodeProto &node) const {
  return llvm::any_of(selections, [&](const onnx::NodeProto *selection) {
    return selection == &node || llvm::any_of(node.input(), [&](const std::string &input) {
             return dependsOn(input, *selection);
           });
  });
}

/// Removes the nodes behind the selections without a reader left, such as the number of places.
void Joiner::removeUnread() {
  std::map<std::string, int> readers;
  for (const GraphNode &node : model.nodes) {
    for (const std::string &input : node.proto->input())
      ++readers[input];
    for (const std::string &name : node.captures)
      ++readers[name];
  }
  for (const onnx::ValueInfoProto &output : model.graph().output())
    ++readers[output.name()];
  std::vector<GraphNode> kept;
  for (GraphNode &node : llvm::reverse(model.nodes)) {
    bool isRead = llvm::any_of(node.proto->output(),
                               [&](const std::string &output) { return readers[output] > 0; });
    if (isRead || !isOfSelection(*node.proto)) {
      kept.push_back(std::move(node));
      continue;
    }
    for (const std::string &input : node.proto->input())
      --readers[input];
    for (const std::string &name : node.captures)
      --readers[name];
  }
  std::reverse(kept.begin(), kept.end());
  model.nodes = std::move(kept);
}

void Joiner::run() {
  std::vector<GraphNode> nodes;
  for (GraphNode &node : model.nodes) {
    added.clear();
    join(node);
    nodes.insert(nodes.end(), added.begin(), added.end());
    nodes.push_back(std::move(node));
  }
  model.nodes = std::move(nodes);
  if (!selections.empty())
    removeUnread();
}

} // namespace

void joinMaskedScatters(Model &model) { Joiner(model).run(); }

} // namespace tbc::frontend

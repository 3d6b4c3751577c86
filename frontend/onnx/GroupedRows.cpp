//===- GroupedRows.cpp - Matmuls of sorted rows by their groups ------------===//

#include "frontend/onnx/GroupedRows.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tbc::frontend {

namespace {

using Node = onnx::NodeProto;

const onnx::AttributeProto *attributeOf(const Node &node, llvm::StringRef name) {
  auto it = llvm::find_if(node.attribute(),
                          [&](const onnx::AttributeProto &a) { return a.name() == name; });
  return it == node.attribute().end() ? nullptr : &*it;
}

int64_t integerOf(const Node &node, llvm::StringRef name, int64_t otherwise) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute ? attribute->i() : otherwise;
}

class Grouper {
public:
  explicit Grouper(Model &model);
  void run();

private:
  const Node *producer(const std::string &value, llvm::StringRef type, int inputs = 1) const;
  std::string withoutViews(std::string value) const;
  std::optional<std::vector<double>> numbersOf(const std::string &value) const;
  bool isFilledWith(const std::string &value, double number) const;
  std::optional<double> numberOf(const std::string &value) const;
  std::optional<int> partOf(const std::string &value, std::string &whole) const;
  std::optional<std::string> sortedKeys(const std::string &groups, int count) const;
  std::optional<std::string> groupsOf(const std::string &ends) const;
  bool join(const Node &concat, std::vector<GraphNode> &nodes);
  Node &add(const char *type, const std::string &name, const std::vector<std::string> &inputs);
  void removeUnread();

  Model &model;
  std::map<std::string, const Node *> producers;
  std::map<std::string, int> readers;
  std::set<const Node *> removed;
  std::vector<const Node *> left; // nodes that lost a reader
};

Grouper::Grouper(Model &model) : model(model) {
  for (const GraphNode &node : model.nodes) {
    for (const std::string &output : node.proto->output())
      producers[output] = node.proto;
    for (const std::string &input : node.proto->input())
      ++readers[input];
    for (const std::string &name : node.captures)
      ++readers[name];
  }
  for (const onnx::ValueInfoProto &output : model.graph().output())
    ++readers[output.name()];
}

/// Returns the node of type `type` with `inputs` inputs or more that makes `value`, or nullptr.
const Node *Grouper::producer(const std::string &value, llvm::StringRef type, int inputs) const {
  auto it = producers.find(value);
  bool isOfType =
      it != producers.end() && it->second->domain().empty() && it->second->op_type() == type;
  return isOfType && it->second->input_size() >= inputs ? it->second : nullptr;
}

/// Returns the value behind casts and changes of shape.
std::string Grouper::withoutViews(std::string value) const {
  for (bool isView = true; isView;) {
    isView = false;
    for (const char *type : {"Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity"})
      if (const Node *node = producer(value, type)) {
        value = node->input(0);
        isView = true;
      }
  }
  return value;
}

/// Returns the numbers of an initializer in the file, or of a Constant.
std::optional<std::vector<double>> Grouper::numbersOf(const std::string &value) const {
  const onnx::TensorProto *tensor = nullptr;
  if (auto it = model.initializers.find(value); it != model.initializers.end())
    tensor = it->second;
  auto made = producers.find(value);
  if (made != producers.end() && made->second->op_type() == "Constant")
    if (const onnx::AttributeProto *attribute = attributeOf(*made->second, "value"))
      tensor = &attribute->t();
  if (!tensor || isExternal(*tensor))
    return std::nullopt;
  Shape shape = shapeOfTensor(*tensor);
  if (saturatedElements(shape) > (1 << 16))
    return std::nullopt;
  Known known = readTensor(model, *tensor);
  if (known.isFloat())
    return known.reals();
  std::vector<int64_t> integers = known.ints();
  return std::vector<double>(integers.begin(), integers.end());
}

/// Whether all elements are `number`, at any size.
bool Grouper::isFilledWith(const std::string &value, double number) const {
  std::string source = withoutViews(value);
  if (const Node *expand = producer(source, "Expand"))
    return isFilledWith(expand->input(0), number);
  if (const Node *fill = producer(source, "ConstantOfShape")) {
    const onnx::AttributeProto *attribute = attributeOf(*fill, "value");
    if (!attribute)
      return number == 0;
    Known known = readTensor(model, attribute->t());
    return known.numElements() == 1 &&
           (known.isFloat() ? known.reals()[0] == number : double(known.ints()[0]) == number);
  }
  auto numbers = numbersOf(source);
  return numbers && !numbers->empty() &&
         llvm::all_of(*numbers, [&](double element) { return element == number; });
}

std::optional<double> Grouper::numberOf(const std::string &value) const {
  auto numbers = numbersOf(withoutViews(value));
  return numbers && numbers->size() == 1 ? std::optional(numbers->front()) : std::nullopt;
}

/// If `value` is Squeeze(Split(whole)), returns the number of the part.
std::optional<int> Grouper::partOf(const std::string &value, std::string &whole) const {
  const Node *squeeze = producer(value, "Squeeze");
  const Node *split = squeeze ? producer(squeeze->input(0), "Split") : nullptr;
  if (!split || integerOf(*split, "axis", 0) != 0)
    return std::nullopt;
  whole = split->input(0);
  for (int i = 0; i < split->output_size(); ++i)
    if (split->output(i) == squeeze->input(0))
      return i;
  return std::nullopt;
}

/// If `groups` is g = f(sorted keys), where f(key) is the key for 0 <= key < `count` and has no
/// descent, returns the keys. Exporters write the bins of torch.histc so: a division by the width
/// of a bin, rounded down and limited to the last one.
std::optional<std::string> Grouper::sortedKeys(const std::string &groups, int count) const {
  std::vector<double> keys(count);
  for (int i = 0; i < count; ++i)
    keys[i] = i;
  std::vector<std::function<double(double)>> steps; // the last first
  std::string value = groups;
  for (;;) {
    if (const Node *cast = producer(value, "Cast")) {
      bool isFloat = integerOf(*cast, "to", 0) == onnx::TensorProto::FLOAT;
      steps.push_back([=](double x) { return isFloat ? double(float(x)) : std::trunc(x); });
      value = cast->input(0);
    } else if (const Node *division = producer(value, "Div", 2)) {
      std::optional<double> divisor = numberOf(division->input(1));
      if (!divisor || *divisor <= 0)
        return std::nullopt;
      steps.push_back([=](double x) { return double(float(x) / float(*divisor)); });
      value = division->input(0);
    } else if (const Node *clip = producer(value, "Clip"); clip && clip->input_size() == 3) {
      std::optional<double> low = numberOf(clip->input(1)), high = numberOf(clip->input(2));
      if (!low || !high)
        return std::nullopt;
      steps.push_back([=](double x) { return std::min(std::max(x, *low), *high); });
      value = clip->input(0);
    } else if (std::string source = withoutViews(value); source != value) {
      value = source;
    } else {
      break;
    }
  }
  const Node *sort = producer(value, "TopK");
  if (!sort || sort->output(0) != value || integerOf(*sort, "largest", 1) != 0 ||
      integerOf(*sort, "sorted", 1) != 1)
    return std::nullopt;
  for (double key : keys) {
    double group = key;
    for (const auto &step : llvm::reverse(steps))
      group = step(group);
    if (group != key)
      return std::nullopt;
  }
  return value;
}

/// Returns the groups that `ends` sums the counts of.
std::optional<std::string> Grouper::groupsOf(const std::string &ends) const {
  const Node *sum = producer(withoutViews(ends), "CumSum");
  if (!sum || integerOf(*sum, "exclusive", 0) || integerOf(*sum, "reverse", 0))
    return std::nullopt;
  const Node *counts = producer(withoutViews(sum->input(0)), "ScatterElements");
  if (!counts || counts->input_size() != 3 || integerOf(*counts, "axis", 0) != 0 ||
      !isFilledWith(counts->input(0), 0) || !isFilledWith(counts->input(2), 1))
    return std::nullopt;
  const onnx::AttributeProto *reduction = attributeOf(*counts, "reduction");
  return reduction && reduction->s() == "add" ? std::optional(counts->input(1)) : std::nullopt;
}

Node &Grouper::add(const char *type, const std::string &name,
                   const std::vector<std::string> &inputs) {
  Node &node = model.ownNodes.emplace_back();
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string &input : inputs) {
    node.add_input(input);
    ++readers[input];
  }
  return node;
}

/// If `concat` joins the groups' products, adds nodes that make its output to `nodes`.
bool Grouper::join(const Node &concat, std::vector<GraphNode> &nodes) {
  std::string rows, matrices, ends, start;
  int count = concat.input_size();
  if (count < 2 || concat.output_size() != 1 || integerOf(concat, "axis", 1) != 0)
    return false;
  for (int i = 0; i < count; ++i) {
    const Node *product = producer(concat.input(i), "MatMul", 2);
    const Node *gather = product ? producer(product->input(0), "Gather", 2) : nullptr;
    const Node *range = gather ? producer(gather->input(1), "Range", 3) : nullptr;
    if (!range || integerOf(*gather, "axis", 0) != 0 || numberOf(range->input(2)) != 1)
      return false;
    std::string stack, sums;
    bool isNext = i == 0 ? numberOf(range->input(0)) == 0 : range->input(0) == start;
    if (!isNext || partOf(product->input(1), stack) != i || partOf(range->input(1), sums) != i ||
        (i > 0 && (stack != matrices || sums != ends || gather->input(0) != rows)))
      return false;
    rows = gather->input(0), matrices = stack, ends = sums, start = range->input(1);
  }
  std::optional<std::string> groups = groupsOf(ends);
  std::optional<std::string> keys = groups ? sortedKeys(*groups, count) : std::nullopt;
  if (!keys)
    return false;
  const std::string &name = concat.name(), prefix = concat.output(0) + "/";
  auto place = [&](Node &node, const std::string &output) {
    node.add_output(output);
    *node.mutable_metadata_props() = concat.metadata_props();
    producers[output] = &node;
    GraphNode &added = nodes.emplace_back();
    added.proto = &node;
    added.name = node.name();
    added.opset = 11; // axes are attributes
  };
  auto withAxis = [](Node &node) -> Node & {
    onnx::AttributeProto *axes = node.add_attribute();
    axes->set_name("axes");
    axes->set_type(onnx::AttributeProto::INTS);
    axes->add_ints(1);
    return node;
  };
  place(add("Gather", name + "/matrices", {matrices, *keys}), prefix + "matrices");
  place(withAxis(add("Unsqueeze", name + "/rows", {rows})), prefix + "rows");
  place(add("MatMul", name + "/product", {prefix + "rows", prefix + "matrices"}),
        prefix + "product");
  place(withAxis(add("Squeeze", name, {prefix + "product"})), concat.output(0));
  removed.insert(&concat);
  left.push_back(&concat);
  return true;
}

/// Removes the nodes whose last readers went, such as the ranges of the groups.
void Grouper::removeUnread() {
  while (!left.empty()) {
    const Node *gone = left.back();
    left.pop_back();
    for (const std::string &input : gone->input()) {
      --readers[input];
      auto it = producers.find(input);
      if (it == producers.end() || removed.count(it->second) ||
          llvm::any_of(it->second->output(),
                       [&](const std::string &output) { return readers[output] > 0; }))
        continue;
      removed.insert(it->second);
      left.push_back(it->second);
    }
  }
  llvm::erase_if(model.nodes, [&](const GraphNode &node) { return removed.count(node.proto) > 0; });
  llvm::erase_if(model.initializerOrder, [&](const onnx::TensorProto *tensor) {
    auto found = readers.find(tensor->name());
    return found != readers.end() && found->second == 0 && !isExternal(*tensor);
  });
}

void Grouper::run() {
  std::vector<GraphNode> nodes;
  nodes.reserve(model.nodes.size());
  for (GraphNode &node : model.nodes) {
    const Node &proto = *node.proto;
    bool isConcat = proto.domain().empty() && proto.op_type() == "Concat";
    if (!isConcat || !join(proto, nodes))
      nodes.push_back(std::move(node));
  }
  model.nodes = std::move(nodes);
  removeUnread();
}

} // namespace

void joinGroupedRows(Model &model) { Grouper(model).run(); }

} // namespace tbc::frontend

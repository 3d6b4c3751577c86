//===- Functions.cpp - Inline local functions and rename bodies ------------===//

#include "frontend/onnx/Functions.h"
#include "frontend/onnx/NodeContext.h"

#include <algorithm>
#include <tuple>

namespace tbc::frontend {

namespace {

/// The limit on nested calls; real models stay far below.
constexpr unsigned maxCallDepth = 64;

/// (domain, name, overload)
using FunctionKey = std::tuple<std::string, std::string, std::string>;

struct Function {
  const onnx::FunctionProto *proto = nullptr;
  int64_t opset = 0;
  /// The number of nodes of an expanded call, and the depth of its calls; set once known.
  uint64_t nodes = 0;
  unsigned depth = 0;
  enum { New, Open, Done } state = New;

  std::string describe() const {
    return "function '" + (proto->domain().empty() ? "" : proto->domain() + ".") + proto->name() +
           "'";
  }
};

/// Resolves value names: names of the main graph stay, other graphs look in `names`, then in the
/// parent scope.
struct Scope {
  const Scope *parent = nullptr;
  const Function *function = nullptr;
  bool isGraph = false;
  std::map<std::string, std::string> names;
};

using AttributeMap = std::map<std::string, const onnx::AttributeProto *>;

/// The context of a node.
struct Place {
  std::string prefix;
  const Scope *scope;
  /// The values of attribute references; null outside of functions.
  const AttributeMap *attributes;
  /// The call, for nodes without metadata of their own.
  const onnx::NodeProto *call;
  int64_t opset;
};

template <typename Node> FunctionKey keyOf(const Node &node, const std::string &name) {
  return {node.domain() == "ai.onnx" ? "" : node.domain(), name, node.overload()};
}

class Expander {
public:
  explicit Expander(Model &model) : model(model) { graphScope.isGraph = true; }

  void run();

private:
  void readFunctions();
  void checkSize();
  void collectNames();
  uint64_t countNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                      unsigned &depth);
  void measure(Function &function);
  Function *findFunction(const onnx::NodeProto &node);

  std::string resolve(const std::string &name, const Scope &scope) const;
  std::string freshValue(const std::string &wanted);
  std::string nodeName(const onnx::NodeProto &node, int index, const std::string &prefix);
  void spend(uint64_t bytes);

  void emit(const onnx::NodeProto &node, int index, const Place &place,
            std::vector<GraphNode> &out);
  void call(const Function &function, const onnx::NodeProto &node, const std::string &name,
            const Place &place, std::vector<GraphNode> &out);
  void copyValue(const std::string &from, const std::string &to, const std::string &name,
                 int64_t opset, std::vector<GraphNode> &out);
  const onnx::NodeProto *rewrite(const onnx::NodeProto &node, const Place &place);
  Body makeBody(const onnx::AttributeProto &attribute, const std::string &owner, const Place &place,
                std::set<std::string> &captures);

  Model &model;
  Scope graphScope;
  std::map<FunctionKey, Function> functions;
  std::set<std::string> explicitNodeNames, usedNodeNames, usedValueNames;
  std::map<std::string, int> nextSuffix;
  uint64_t spentBytes = 0;
};

bool hasGraph(const onnx::NodeProto &node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const onnx::AttributeProto &attribute) { return attribute.has_g(); });
}

//===- sizes ---------------------------------------------------------------===//

void Expander::readFunctions() {
  for (const onnx::FunctionProto &proto : model.proto->functions()) {
    // A body for other programs; without it the op keeps its meaning.
    if (findImporter(proto.domain(), proto.name()) && proto.domain() == "tbc")
      continue;
    Function function;
    function.proto = &proto;
    function.opset = model.opset;
    for (const onnx::OperatorSetIdProto &set : proto.opset_import())
      if (set.domain().empty() || set.domain() == "ai.onnx")
        function.opset = set.version();
    if (!functions.emplace(keyOf(proto, proto.name()), function).second)
      throw ImportError(function.describe() + " is defined twice");
  }
}

Function *Expander::findFunction(const onnx::NodeProto &node) {
  if (functions.empty())
    return nullptr;
  auto it = functions.find(keyOf(node, node.op_type()));
  return it == functions.end() ? nullptr : &it->second;
}

uint64_t Expander::countNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                              unsigned &depth) {
  uint64_t count = 0;
  for (const onnx::NodeProto &node : nodes) {
    if (Function *function = findFunction(node)) {
      measure(*function);
      count += function->nodes;
      depth = std::max(depth, function->depth + 1);
    } else {
      ++count;
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          count += countNodes(attribute.g().node(), depth);
    }
    count = std::min<uint64_t>(count, uint64_t(1) << 40);
  }
  return count;
}

void Expander::measure(Function &function) {
  if (function.state == Function::Done)
    return;
  if (function.state == Function::Open)
    throw ImportError(function.describe() + " calls itself");
  function.state = Function::Open;
  // One extra node for outputs that are inputs.
  function.nodes = 1 + countNodes(function.proto->node(), function.depth);
  if (function.depth > maxCallDepth)
    throw ImportError(function.describe() + " calls functions more than " +
                      std::to_string(maxCallDepth) + " deep");
  function.state = Function::Done;
}

/// Checks the size before expansion: a few nested functions can expand to any number of nodes.
void Expander::checkSize() {
  uint64_t limit = 32768 + model.scanned.skeleton.size() / 16, total = 0;
  unsigned depth = 0;
  for (const onnx::NodeProto &node : model.graph().node()) {
    auto fail = [&](const std::string &what) {
      throw ImportError("node '" + node.name() + "' (" + node.op_type() + "): " + what);
    };
    try {
      if (Function *function = findFunction(node)) {
        measure(*function);
        total += function->nodes;
      } else {
        for (const onnx::AttributeProto &attribute : node.attribute())
          if (attribute.has_g())
            total += countNodes(attribute.g().node(), depth);
      }
    } catch (const ImportError &error) {
      fail(error.what());
    }
    if (total > limit + uint64_t(model.graph().node_size()))
      fail("the local functions expand to more than " + std::to_string(limit) +
           " nodes, too many for a file of this size; export the model without them");
  }
}

void Expander::spend(uint64_t bytes) {
  uint64_t limit = (uint64_t(16) << 20) + model.scanned.skeleton.size();
  spentBytes += bytes;
  if (spentBytes > limit)
    throw ImportError("the local functions expand to more than " + std::to_string(limit) +
                      " bytes, too many for a file of this size; export the model without them");
}

//===- names ---------------------------------------------------------------===//

void Expander::collectNames() {
  const onnx::GraphProto &graph = model.graph();
  for (const onnx::TensorProto &tensor : graph.initializer())
    usedValueNames.insert(tensor.name());
  for (const onnx::ValueInfoProto &input : graph.input())
    usedValueNames.insert(input.name());
  for (const onnx::NodeProto &node : graph.node())
    usedValueNames.insert(node.output().begin(), node.output().end());
}

std::string Expander::resolve(const std::string &name, const Scope &scope) const {
  if (name.empty())
    return name;
  for (const Scope *at = &scope; at; at = at->parent) {
    auto it = at->names.find(name);
    if (it != at->names.end())
      return it->second;
    if (at->isGraph)
      return name;
    if (at->function)
      throw ImportError(at->function->describe() + " reads '" + name +
                        "', which nothing in it defines");
  }
  return name;
}

std::string Expander::freshValue(const std::string &wanted) {
  std::string name = wanted;
  while (!usedValueNames.insert(name).second)
    name = wanted + "#" + std::to_string(++nextSuffix[wanted]);
  return name;
}

std::string Expander::nodeName(const onnx::NodeProto &node, int index, const std::string &prefix) {
  std::string name =
      prefix + (node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name());
  std::string unique = name;
  bool isExplicit = prefix.empty() && !node.name().empty();
  // One counter per name, so a million nodes of one name stay cheap.
  while (usedNodeNames.count(unique) ||
         ((!isExplicit || unique != name) && explicitNodeNames.count(unique)))
    unique = name + "#" + std::to_string(++nextSuffix[name]);
  usedNodeNames.insert(unique);
  return unique;
}

//===- nodes ---------------------------------------------------------------===//

const onnx::NodeProto *Expander::rewrite(const onnx::NodeProto &node, const Place &place) {
  onnx::NodeProto &copy = model.ownNodes.emplace_back();
  copy.set_op_type(node.op_type());
  copy.set_domain(node.domain());
  copy.set_name(node.name());
  for (const std::string &input : node.input())
    copy.add_input(resolve(input, *place.scope));
  for (const std::string &output : node.output())
    copy.add_output(resolve(output, *place.scope));
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      continue;
    const onnx::AttributeProto *source = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      if (!place.attributes)
        throw ImportError("node '" + node.name() + "' (" + node.op_type() + "): attribute '" +
                          attribute.name() +
                          "' refers to an attribute of a function, but the node is in none");
      auto it = place.attributes->find(attribute.ref_attr_name());
      // A reference without value and default: the attribute is omitted.
      if (it == place.attributes->end())
        continue;
      source = it->second;
    }
    onnx::AttributeProto &added = *copy.add_attribute();
    added = *source;
    added.set_name(attribute.name());
  }
  const onnx::NodeProto *metadata =
      node.metadata_props_size() > 0 || !place.call ? &node : place.call;
  *copy.mutable_metadata_props() = metadata->metadata_props();
  spend(copy.ByteSizeLong() + place.prefix.size());
  return &copy;
}

void Expander::emit(const onnx::NodeProto &node, int index, const Place &place,
                    std::vector<GraphNode> &out) {
  std::string name = nodeName(node, index, place.prefix);
  if (const Function *function = findFunction(node))
    return call(*function, node, name, place, out);
  GraphNode result;
  result.name = name;
  result.opset = place.opset;
  // Nodes of the main graph stay unchanged; attribute references there are errors.
  bool mustRewrite = !place.scope->isGraph;
  std::set<std::string> captures;
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.has_g())
      result.bodies.push_back(makeBody(attribute, name, place, captures));
  result.captures.assign(captures.begin(), captures.end());
  result.proto = mustRewrite ? rewrite(node, place) : &node;
  out.push_back(std::move(result));
}

void Expander::copyValue(const std::string &from, const std::string &to, const std::string &name,
                         int64_t opset, std::vector<GraphNode> &out) {
  onnx::NodeProto &copy = model.ownNodes.emplace_back();
  copy.set_op_type("Identity");
  copy.add_input(from);
  copy.add_output(to);
  GraphNode result;
  result.proto = &copy;
  result.name = nodeName(copy, int(out.size()), name + "/");
  result.opset = opset;
  out.push_back(std::move(result));
}

void Expander::call(const Function &function, const onnx::NodeProto &node, const std::string &name,
                    const Place &place, std::vector<GraphNode> &out) {
  const onnx::FunctionProto &proto = *function.proto;
  checkOpset(function.opset, function.describe());
  auto fail = [&](const std::string &what) {
    throw ImportError("node '" + name + "' (" + node.op_type() + "): " + what);
  };
  if (node.input_size() > proto.input_size() || node.output_size() > proto.output_size())
    fail("has " + std::to_string(node.input_size()) + " inputs and " +
         std::to_string(node.output_size()) + " outputs, but " + function.describe() + " takes " +
         std::to_string(proto.input_size()) + " and gives " + std::to_string(proto.output_size()));

  AttributeMap attributes;
  for (const onnx::AttributeProto &attribute : proto.attribute_proto())
    attributes[attribute.name()] = &attribute;
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      fail("passes a graph to a function, which is not supported");
    if (attribute.ref_attr_name().empty()) {
      attributes[attribute.name()] = &attribute;
    } else if (place.attributes) {
      auto it = place.attributes->find(attribute.ref_attr_name());
      if (it != place.attributes->end())
        attributes[attribute.name()] = it->second;
    }
  }

  Scope scope;
  scope.function = &function;
  std::set<std::string> inputs, defined;
  for (int i = 0; i < proto.input_size(); ++i) {
    std::string actual = i < node.input_size() ? resolve(node.input(i), *place.scope) : "";
    scope.names[proto.input(i)] = actual;
    if (!inputs.insert(proto.input(i)).second)
      fail(function.describe() + " has two inputs '" + proto.input(i) + "'");
  }
  std::vector<std::pair<std::string, std::string>> copies;
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty())
      continue;
    std::string actual = resolve(node.output(i), *place.scope);
    if (!scope.names.emplace(proto.output(i), actual).second)
      copies.push_back({proto.output(i), actual});
  }
  for (const onnx::NodeProto &inner : proto.node())
    for (const std::string &output : inner.output()) {
      if (output.empty())
        continue;
      if (inputs.count(output) || !defined.insert(output).second)
        fail(function.describe() + " defines '" + output + "' twice");
      if (!scope.names.count(output))
        scope.names[output] = freshValue(name + "/" + output);
      spend(name.size() + 2 * output.size() + 96);
    }
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty() && !defined.count(proto.output(i)) &&
        !inputs.count(proto.output(i)))
      fail(function.describe() + " does not define its output '" + proto.output(i) + "'");

  Place inside{name + "/", &scope, &attributes, node.metadata_props_size() ? &node : place.call,
               function.opset};
  for (int i = 0; i < proto.node_size(); ++i)
    emit(proto.node(i), i, inside, out);
  for (const auto &[formal, actual] : copies) {
    if (scope.names[formal].empty())
      fail(function.describe() + " returns its input '" + formal + "', which is not given");
    copyValue(scope.names[formal], actual, name, function.opset, out);
  }
}

Body Expander::makeBody(const onnx::AttributeProto &attribute, const std::string &owner,
                        const Place &place, std::set<std::string> &captures) {
  const onnx::GraphProto &graph = attribute.g();
  Body body;
  body.attribute = attribute.name();
  Scope scope;
  scope.parent = place.scope;
  Place inside = place;
  inside.prefix = owner + "/" + attribute.name() + "/";
  inside.scope = &scope;
  std::set<std::string> own;
  std::vector<std::string> fromOutside;
  auto define = [&](const std::string &name, const std::string &wanted) -> const std::string & {
    std::string unique = freshValue(wanted);
    spend(unique.size() + name.size() + 96);
    own.insert(unique);
    auto [it, isNew] = scope.names.emplace(name, unique);
    if (!isNew)
      throw ImportError("the graph '" + attribute.name() + "' of node '" + owner + "' defines '" +
                        name + "' twice");
    return it->second;
  };
  for (const onnx::ValueInfoProto &input : graph.input()) {
    body.inputs.push_back(define(input.name(), inside.prefix + input.name()));
    fromOutside.push_back(body.inputs.back());
  }
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (tensor.name().empty())
      throw ImportError("an initializer of node '" + owner + "' has no name");
    // A weight keeps its name if possible.
    const std::string &name =
        define(tensor.name(),
               usedValueNames.count(tensor.name()) ? inside.prefix + tensor.name() : tensor.name());
    onnx::TensorProto &copy = model.ownTensors.emplace_back(tensor);
    copy.set_name(name);
    spend(copy.ByteSizeLong());
    model.initializers[name] = &copy;
    model.initializerOrder.push_back(&copy);
    model.bodyInitializers.insert(name);
    fromOutside.push_back(name);
  }
  for (const onnx::NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      if (!output.empty())
        define(output, inside.prefix + output);
  for (int i = 0; i < graph.node_size(); ++i)
    emit(graph.node(i), i, inside, body.nodes);
  for (const onnx::ValueInfoProto &output : graph.output())
    body.outputs.push_back(resolve(output.name(), scope));

  auto capture = [&](const std::string &name) {
    if (!name.empty() && !own.count(name))
      captures.insert(name);
  };
  for (const GraphNode &node : body.nodes) {
    own.insert(node.proto->output().begin(), node.proto->output().end());
    spend(node.name.size() + 256);
  }
  for (const GraphNode &node : body.nodes) {
    for (const std::string &input : node.proto->input())
      capture(input);
    for (const std::string &input : node.captures)
      capture(input);
  }
  for (const std::string &output : body.outputs)
    capture(output);
  sortNodes(body.nodes, fromOutside, /*isBody=*/true);
  return body;
}

void Expander::run() {
  const onnx::GraphProto &graph = model.graph();
  readFunctions();
  checkSize();
  if (!functions.empty() || std::any_of(graph.node().begin(), graph.node().end(), hasGraph))
    collectNames();
  for (const onnx::NodeProto &node : graph.node())
    if (!node.name().empty())
      explicitNodeNames.insert(node.name());
  Place place{"", &graphScope, nullptr, nullptr, model.opset};
  model.nodes.reserve(graph.node_size());
  for (int i = 0; i < graph.node_size(); ++i)
    emit(graph.node(i), i, place, model.nodes);
}

} // namespace

void expandNodes(Model &model) { Expander(model).run(); }

} // namespace tbc::frontend

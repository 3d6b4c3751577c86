//===- Users.cpp - Readers and producers of values -------------------------===//

#include "frontend/onnx/Users.h"

#include "frontend/onnx/NodeContext.h"

#include <algorithm>

namespace tbc::frontend {

namespace {

OperandUse operandUse(const GraphNode &node) {
  const OpImporter *importer = findImporter(node.proto->domain(), node.proto->op_type());
  return importer ? importer->use : OperandUse();
}

bool isOneOf(const GraphNode *node, std::initializer_list<const char *> types) {
  return node && std::any_of(types.begin(), types.end(),
                             [&](const char *type) { return node->proto->op_type() == type; });
}

/// Returns the other input of a binary node.
const std::string &otherInput(const Use &use) { return use.node->proto->input(1 - use.input); }

} // namespace

Users::Users(const Model &model) {
  forEachNode(model.nodes, [&](const GraphNode &node) {
    for (int i = 0; i < node.proto->input_size(); ++i)
      if (!node.proto->input(i).empty())
        uses[node.proto->input(i)].push_back({&node, i});
    for (const Body &body : node.bodies)
      for (const std::string &output : body.outputs)
        uses[output].push_back({&node, -1});
    for (const std::string &output : node.proto->output())
      producers[output] = &node;
  });
  for (const onnx::ValueInfoProto &output : model.graph().output())
    outputs.insert(output.name());
}

const std::vector<Use> &Users::of(const std::string &value) const {
  static const std::vector<Use> none;
  auto it = uses.find(value);
  return it == uses.end() ? none : it->second;
}

const GraphNode *Users::producer(const std::string &value) const {
  auto it = producers.find(value);
  return it == producers.end() ? nullptr : it->second;
}

/// If `use` is that of a loop which carries the value unchanged through all iterations, or gives
/// the body one slice of it in each, returns the body's input that holds it; else null. jax2onnx
/// carries the weights of a scan.
const std::string *Users::insideLoop(const Use &use) const {
  const bool isScan = isOneOf(use.node, {"Scan"});
  // Before its states a Loop takes the trip count and a condition, and its body the iteration.
  const int firstState = isScan ? 0 : 2;
  if ((!isScan && !isOneOf(use.node, {"Loop"})) || use.input < firstState ||
      use.node->bodies.size() != 1)
    return nullptr;
  const Body &body = use.node->bodies[0];
  if (size_t(use.input) >= body.inputs.size())
    return nullptr;
  const std::string &input = body.inputs[size_t(use.input)];
  const size_t output = size_t(isScan ? use.input : use.input - 1);
  const auto &attributes = use.node->proto->attribute();
  auto numSlices = std::find_if(attributes.begin(), attributes.end(), [](const auto &attribute) {
    return attribute.name() == "num_scan_inputs";
  });
  if (isScan && numSlices != attributes.end() &&
      use.input >= use.node->proto->input_size() - numSlices->i())
    return &input;
  if (output >= body.outputs.size())
    return nullptr;
  const std::string *value = &body.outputs[output];
  while (const GraphNode *node = producer(*value)) {
    if (!isOneOf(node, {"Identity"}))
      return nullptr;
    value = &node->proto->input(0);
  }
  return *value == input ? &input : nullptr;
}

std::optional<std::vector<Use>> Users::readsOf(const std::string &value) const {
  constexpr size_t maxReads = 512;
  std::vector<Use> reads;
  std::vector<std::string> pending{value};
  for (size_t i = 0; i < pending.size(); ++i) {
    const std::vector<Use> &direct = of(pending[i]);
    if (pending.size() + reads.size() + direct.size() > maxReads)
      return std::nullopt;
    for (const Use &use : direct) {
      if (use.input == 0 && operandUse(*use.node).isView)
        pending.insert(pending.end(), use.node->proto->output().begin(),
                       use.node->proto->output().end());
      else if (const std::string *inside = insideLoop(use))
        pending.push_back(*inside);
      else
        reads.push_back(use);
    }
  }
  return reads;
}

bool Users::isOnlyCompared(const std::string &value) const {
  std::optional<std::vector<Use>> reads = readsOf(value);
  return reads && !reads->empty() && std::all_of(reads->begin(), reads->end(), [](const Use &use) {
           bool isCondition = use.input == 0 && isOneOf(use.node, {"Where", "Not"});
           return isCondition ||
                  (use.input >= 0 && isOneOf(use.node, {"Equal", "Greater", "Less",
                                                        "GreaterOrEqual", "LessOrEqual"}));
         });
}

const GraphNode *Users::producerBehindViews(std::string value) const {
  constexpr int maxViews = 32;
  const GraphNode *node = producer(value);
  for (int i = 0; i < maxViews && node && operandUse(*node).isView; ++i)
    node = node->proto->input_size() > 0 ? producer(node->proto->input(0)) : nullptr;
  return node;
}

bool Users::isRoot(const std::string &value) const {
  return isOneOf(producerBehindViews(value), {"Sqrt", "Pow", "Reciprocal"});
}

/// Whether `value` is the result of a norm: one op, or the decomposed x / sqrt(..) or x *
/// 1/sqrt(..).
bool Users::isNormalized(const std::string &value) const {
  const GraphNode *node = producerBehindViews(value);
  if (!node)
    return false;
  const std::string &type = node->proto->op_type(), suffix = "Normalization";
  if (type.size() > suffix.size() && type.substr(type.size() - suffix.size()) == suffix)
    return true;
  if (!isOneOf(node, {"Div", "Mul"}) || node->proto->input_size() != 2)
    return false;
  auto isInverseRoot = [&](const std::string &operand) {
    const GraphNode *maker = producerBehindViews(operand);
    return isOneOf(maker, {"Reciprocal", "Pow"}) ||
           (isOneOf(maker, {"Div"}) && maker->proto->input_size() == 2 &&
            isRoot(maker->proto->input(1)));
  };
  return isOneOf(node, {"Div"})
             ? isRoot(node->proto->input(1))
             : isInverseRoot(node->proto->input(0)) || isInverseRoot(node->proto->input(1));
}

bool Users::isMadeWithWeights(const std::string &value) const {
  const GraphNode *node = producerBehindViews(value);
  if (!node)
    return false;
  if (operandUse(*node).weights != 0 || isNormalized(value))
    return true;
  return isOneOf(node, {"Mul"}) && node->proto->input_size() == 2 &&
         (isNormalized(node->proto->input(0)) || isNormalized(node->proto->input(1)));
}

UseKind Users::kindOf(const Use &use, const Shape &shape) const {
  if (use.input < 0)
    return UseKind::Other;
  uint32_t weights = operandUse(*use.node).weights;
  if (use.input < 32 && (weights >> use.input & 1))
    return UseKind::Weight;
  bool isMul = isOneOf(use.node, {"Mul"}), isAdd = isOneOf(use.node, {"Add"});
  if ((!isMul && !isAdd) || use.node->proto->input_size() != 2)
    return UseKind::Other;
  const std::string &other = otherInput(use);
  if (isMul && isNormalized(other))
    return UseKind::Affine;
  auto isLong = [](int64_t size) { return size != 1; };
  if (std::count_if(shape.begin(), shape.end(), isLong) > 1 || !isMadeWithWeights(other))
    return UseKind::Other;
  return isMul ? UseKind::Scale : UseKind::Bias;
}

} // namespace tbc::frontend

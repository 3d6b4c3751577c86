//===- NodeContext.cpp - Inputs and attributes of one node -----------------===//

#include "frontend/onnx/NodeContext.h"
#include "frontend/onnx/AttributeDefaults.h"

#include <cmath>
#include <map>

namespace tbc::frontend {

const Value &NodeContext::anyInput(size_t i) const {
  if (!hasInput(i))
    throw ImportError("input " + std::to_string(i) + " is missing");
  return *inputs[i];
}

const Value &NodeContext::input(size_t i) const {
  const Value &value = anyInput(i);
  if (value.sequence)
    throw ImportError("input " + std::to_string(i) + " ('" + inputName(i) +
                      "') is a sequence of tensors; the op takes a tensor");
  return value;
}

const std::vector<Value> &NodeContext::sequence(size_t i) const {
  const Value &value = anyInput(i);
  if (!value.sequence)
    throw ImportError("input " + std::to_string(i) + " ('" + inputName(i) +
                      "') is a tensor; the op takes a sequence of tensors");
  return *value.sequence;
}

/// Whether an attribute has no effect, also where the op has no default for it.
static bool saysNothing(llvm::StringRef type, const onnx::AttributeProto &attribute) {
  const std::string &name = attribute.name();
  if (name == "stash_type") // of norms: they compute in f32 anyway
    return attribute.i() == onnx::TensorProto::FLOAT;
  if (name == "broadcast") // before operator set 7: the default today
    return true;
  // Reductions: the behaviour without axes, and for the remaining dims.
  return type.starts_with("Reduce") && (name == "noop_with_empty_axes" || name == "keepdims");
}

void NodeContext::requireAllAsked(llvm::StringRef unread) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] && !asked[i])
      throw ImportError("has " + std::to_string(inputs.size()) + " inputs; what input " +
                        std::to_string(i) + " ('" + inputName(i) + "') means is not known");
  llvm::SmallVector<llvm::StringRef> ignored;
  unread.split(ignored, ' ');
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (!askedAttributes.count(attribute.name()) &&
        !llvm::is_contained(ignored, attribute.name()) && !saysNothing(node.op_type(), attribute) &&
        !hasDefault(node.domain(), node.op_type(), opset, attribute))
      throw ImportError("attribute '" + attribute.name() +
                        "' is not known to this op; export the model without it");
}

void NodeContext::importAs(const OpImporter &importer, std::vector<const Value *> otherInputs,
                           std::optional<int64_t> axis, bool withoutAxes) {
  onnx::NodeProto proto = node;
  proto.clear_attribute();
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (!(axis && attribute.name() == "axis") && !(withoutAxes && attribute.name() == "axes"))
      *proto.add_attribute() = attribute;
  if (axis) {
    onnx::AttributeProto &attribute = *proto.add_attribute();
    attribute.set_name("axis");
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(*axis);
  }
  GraphNode other{&proto, graphNode.name, graphNode.opset, {}, {}};
  NodeContext context(model, other, emitter, std::move(otherInputs), runBody);
  importer.import(context);
  outputs = context.outputs;
  warnings.insert(warnings.end(), context.warnings.begin(), context.warnings.end());
  for (size_t i = 0; i < std::min(asked.size(), context.asked.size()); ++i)
    asked[i] = asked[i] || context.asked[i];
  askedAttributes.insert(context.askedAttributes.begin(), context.askedAttributes.end());
}

std::vector<Value> NodeContext::allInputs() const {
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values.push_back(input(i));
  if (values.empty())
    throw ImportError("has no inputs");
  return values;
}

std::vector<int64_t> NodeContext::ints(size_t i) const {
  const Value &value = input(i);
  if (!value.isKnown() || kernels::isFloat(value.dtype))
    throw ImportError("input " + std::to_string(i) + " ('" + inputName(i) +
                      "') must be integers that follow from shapes and constants, but it is " +
                      (value.isKnown() ? "not of an integer type" : "computed from data"));
  return fullInts(value);
}

int64_t NodeContext::integer(size_t i) const {
  std::vector<int64_t> values = ints(i);
  if (values.size() != 1)
    throw ImportError("input " + std::to_string(i) + " ('" + inputName(i) +
                      "') must be one integer, not " + std::to_string(values.size()));
  return values[0];
}

double NodeContext::scalar(size_t i) const {
  const Value &value = input(i);
  if (!value.isSplat())
    throw ImportError("input " + std::to_string(i) + " ('" + inputName(i) +
                      "') must be one constant number");
  return value.splatReal();
}

bool NodeContext::hasBody(llvm::StringRef attribute) const {
  return llvm::any_of(graphNode.bodies,
                      [&](const Body &body) { return body.attribute == attribute; });
}

std::string NodeContext::torchOp() const { return torchOpOf(node); }

/// Splits `text` at the commas outside of its brackets. Example: "%x, [1, 2], None" has 3 parts.
static std::vector<llvm::StringRef> argumentsOf(llvm::StringRef text) {
  std::vector<llvm::StringRef> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.slice(begin, i).trim());
      begin = i + 1;
    } else {
      depth += llvm::StringRef("([{").contains(text[i]);
      depth -= llvm::StringRef(")]}").contains(text[i]);
    }
  }
  return parts;
}

std::optional<std::string> NodeContext::torchArgument(llvm::StringRef op, size_t place,
                                                      llvm::StringRef name) const {
  for (const onnx::StringStringEntryProto &entry : node.metadata_props()) {
    if (entry.key() != kTorchCallKey)
      continue;
    // %y : [num_users=1] = call_function[target=torch.ops.OP.default](args = (...), kwargs = {...})
    llvm::StringRef text = llvm::StringRef(entry.value()).split("target=torch.ops.").second;
    auto [target, call] = text.split("](args = (");
    if (target.rsplit('.').first != op)
      continue;
    auto [positional, named] = call.split("), kwargs = {");
    std::vector<llvm::StringRef> arguments = argumentsOf(positional);
    if (place < arguments.size() && !arguments[place].empty())
      return arguments[place].str();
    for (llvm::StringRef argument : argumentsOf(named.rsplit('}').first))
      if (auto [key, value] = argument.split(": "); key == name)
        return value.str();
  }
  return std::nullopt;
}

std::optional<double> NodeContext::torchNumber(llvm::StringRef op, size_t place,
                                               llvm::StringRef name) const {
  std::optional<std::string> text = torchArgument(op, place, name);
  if (!text)
    return std::nullopt;
  double number = 0;
  if (llvm::StringRef(*text).getAsDouble(number))
    throw ImportError("is written from " + op.str() + " with " + name.str() + " " + *text +
                      ", where a number is expected");
  return number;
}

const Body &NodeContext::body(llvm::StringRef attribute) const {
  askedAttributes.insert(attribute.str());
  for (const Body &body : graphNode.bodies)
    if (body.attribute == attribute)
      return body;
  throw ImportError("has no graph '" + attribute.str() + "'");
}

const onnx::AttributeProto *NodeContext::find(llvm::StringRef name) const {
  askedAttributes.insert(name.str());
  const onnx::AttributeProto *found = nullptr;
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.name() != name)
      continue;
    if (found)
      throw ImportError("attribute '" + attribute.name() + "' is given twice");
    if (!attribute.ref_attr_name().empty())
      throw ImportError("attribute '" + attribute.name() +
                        "' refers to an attribute of a function, but the node is in none");
    found = &attribute;
  }
  // One rule for all importers: an attribute at its default means the same as none.
  return found && hasDefault(node.domain(), node.op_type(), opset, *found) ? nullptr : found;
}

/// Throws if `attribute` declares another type than `type`; old exporters declare no type.
static void requireType(const onnx::AttributeProto &attribute,
                        onnx::AttributeProto::AttributeType type) {
  if (attribute.type() != type && attribute.type() != onnx::AttributeProto::UNDEFINED)
    throw ImportError("attribute '" + attribute.name() + "' is of the wrong type");
}

int64_t NodeContext::attrInt(llvm::StringRef name, int64_t defaultValue) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute)
    return defaultValue;
  requireType(*attribute, onnx::AttributeProto::INT);
  return attribute->i();
}

double NodeContext::attrFloat(llvm::StringRef name, double defaultValue) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute)
    return defaultValue;
  requireType(*attribute, onnx::AttributeProto::FLOAT);
  if (!std::isfinite(attribute->f()))
    throw ImportError("attribute '" + attribute->name() + "' is not finite");
  return attribute->f();
}

std::string NodeContext::attrText(llvm::StringRef name, const std::string &defaultValue) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute)
    return defaultValue;
  requireType(*attribute, onnx::AttributeProto::STRING);
  return attribute->s();
}

std::vector<int64_t> NodeContext::attrInts(llvm::StringRef name,
                                           std::vector<int64_t> defaultValue) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute)
    return defaultValue;
  requireType(*attribute, onnx::AttributeProto::INTS);
  return {attribute->ints().begin(), attribute->ints().end()};
}

std::vector<double> NodeContext::attrFloats(llvm::StringRef name) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute)
    return {};
  requireType(*attribute, onnx::AttributeProto::FLOATS);
  return {attribute->floats().begin(), attribute->floats().end()};
}

Value NodeContext::attrTensor(llvm::StringRef name) const {
  const onnx::AttributeProto *attribute = find(name);
  if (!attribute || !attribute->has_t())
    throw ImportError("attribute '" + name.str() + "' is missing");
  Known known = readTensor(model, attribute->t());
  return Value::ofKnown(dtypeOfOnnx(attribute->t().data_type(), "attribute '" + name.str() + "'"),
                        known);
}

std::vector<int64_t> NodeContext::axes(size_t i, llvm::StringRef name) const {
  return hasInput(i) ? ints(i) : attrInts(name, {});
}

llvm::ArrayRef<llvm::ArrayRef<OpImporter>> opFamilies() {
  static const llvm::ArrayRef<OpImporter> families[] = {
      mathOps(),    activationOps(), shapeOps(),     generatorOps(),
      padOps(),     scatterOps(),    resizeOps(),    indexingOps(),
      linearOps(),  reductionOps(),  normOps(),      convOps(),
      poolOps(),    recurrentOps(),  attentionOps(), microsoftOps(),
      controlOps(), trainingOps(),   lossOps(),      quantizationOps(),
      fourierOps(), randomOps(),     sequenceOps(),  linearAttentionOps(),
  };
  return families;
}

const OpImporter *findImporter(const std::string &domain, const std::string &type) {
  using Table = std::map<std::pair<std::string, std::string>, const OpImporter *>;
  static const Table table = [] {
    Table result;
    for (llvm::ArrayRef<OpImporter> family : opFamilies())
      for (const OpImporter &importer : family)
        result[{importer.domain, importer.type}] = &importer;
    return result;
  }();
  auto it = table.find({domain == "ai.onnx" ? "" : domain, type});
  return it == table.end() ? nullptr : it->second;
}

} // namespace tbc::frontend

//===- Upgrade.cpp - Convert nodes of older operator sets ------------------===//

#include "frontend/onnx/NodeContext.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace tbc::frontend {

namespace {

/// An attribute that became an input.
struct MovedAttribute {
  const char *type;
  /// The first operator set with it as an input.
  int64_t until;
  const char *attribute;
  size_t input;
};

/// Source: the change log of ONNX's operators.
constexpr MovedAttribute movedAttributes[] = {
    {"Clip", 11, "min", 1},       {"Clip", 11, "max", 2},   {"Dropout", 12, "ratio", 1},
    {"Pad", 11, "pads", 1},       {"Pad", 11, "value", 2},  {"Slice", 10, "starts", 1},
    {"Slice", 10, "ends", 2},     {"Slice", 10, "axes", 3}, {"Split", 13, "split", 1},
    {"Squeeze", 13, "axes", 1},   {"TopK", 10, "k", 1},     {"Unsqueeze", 13, "axes", 1},
    {"Upsample", 9, "scales", 1},
};

/// Returns the oldest operator set with a supported form of the op. Unlisted ops have had no
/// relevant change since 6.
int64_t oldestForm(llvm::StringRef type) {
  return llvm::StringSwitch<int64_t>(type)
      .Case("Not", 1)
      .Cases("GRU", "LSTM", "RNN", 7)
      .Cases("Scan", "Upsample", 9)
      .Case("Resize", 11)
      .Default(6);
}

/// Whether the op broadcasts its second operand from dim `axis` on before operator set 7.
bool hadBroadcastAxis(llvm::StringRef type) {
  return llvm::is_contained(
      {"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"}, type);
}

} // namespace

void NodeContext::addInput(size_t i, Value value) {
  added.push_back(std::move(value));
  inputs.resize(std::max(inputs.size(), i + 1), nullptr);
  inputs[i] = &added.back();
  asked.resize(inputs.size(), true);
}

void NodeContext::upgrade() {
  llvm::StringRef type = node.op_type();
  if (!node.domain().empty() && node.domain() != "ai.onnx")
    return;
  if (opset < oldestForm(type))
    throw ImportError("uses operator set " + std::to_string(opset) + "; its forms since " +
                      std::to_string(oldestForm(type)) +
                      " are supported. Convert the model with onnx.version_converter");
  for (const MovedAttribute &moved : movedAttributes) {
    if (type != moved.type || opset >= moved.until)
      continue;
    const onnx::AttributeProto *attribute = find(moved.attribute);
    if (!attribute || hasInput(moved.input))
      continue;
    if (attribute->type() == onnx::AttributeProto::INTS)
      addInput(moved.input, Value::ofInts(attrInts(moved.attribute, {})));
    else if (attribute->type() == onnx::AttributeProto::INT)
      addInput(moved.input, Value::ofInts({attribute->i()}));
    else if (attribute->type() == onnx::AttributeProto::FLOATS)
      addInput(moved.input,
               Value::ofKnown(DType::F32, Known::ofReals({attribute->floats_size()},
                                                         {attribute->floats().begin(),
                                                          attribute->floats().end()})));
    else
      addInput(moved.input, number(input(0), attrFloat(moved.attribute, 0)));
  }
  if (opset < 7 && hadBroadcastAxis(type) && hasAttr("axis")) {
    const Value &a = input(0), &b = input(1);
    unsigned axis = checkAxis(attrInt("axis", 0), a.rank());
    std::vector<unsigned> trailing;
    for (unsigned dim = b.rank(); axis + dim < a.rank(); ++dim)
      trailing.push_back(dim);
    addInput(1, unsqueeze(b, trailing));
  }
}

} // namespace tbc::frontend

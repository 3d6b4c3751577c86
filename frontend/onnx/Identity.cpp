//===- Identity.cpp - Identity of a model without its weights ---------------===//

#include "frontend/onnx/Identity.h"

#include "runtime/abi/Sha256.h"

namespace tbc::frontend {

namespace {

/// Writes the identifying parts as an unambiguous text: every list and string begins with its
/// length.
class Describer {
public:
  std::string text;

  void graph(const onnx::GraphProto &graph) {
    number(graph.initializer_size());
    for (const onnx::TensorProto &tensor : graph.initializer())
      declaration(tensor);
    number(graph.node_size());
    for (const onnx::NodeProto &entry : graph.node())
      node(entry);
    number(graph.output_size());
    for (const onnx::ValueInfoProto &output : graph.output())
      word(output.name());
  }
  void node(const onnx::NodeProto &node) {
    word(node.domain());
    word(node.op_type());
    names(node.input());
    names(node.output());
    number(node.attribute_size());
    for (const onnx::AttributeProto &entry : node.attribute())
      attribute(entry);
  }

private:
  void number(int64_t value) { text += std::to_string(value) + " "; }
  void word(const std::string &value) {
    number(int64_t(value.size()));
    text += value;
  }
  template <typename Names> void names(const Names &list) {
    number(list.size());
    for (const std::string &name : list)
      word(name);
  }
  void declaration(const onnx::TensorProto &tensor) {
    word(tensor.name());
    number(tensor.data_type());
    number(tensor.dims_size());
    for (int64_t size : tensor.dims())
      number(size);
  }
  void attribute(const onnx::AttributeProto &attribute) {
    word(attribute.name());
    number(attribute.type());
    // The other fields are short, and protobuf writes them in a fixed order.
    onnx::AttributeProto rest;
    rest.set_f(attribute.f());
    rest.set_i(attribute.i());
    rest.set_s(attribute.s());
    *rest.mutable_floats() = attribute.floats();
    *rest.mutable_ints() = attribute.ints();
    *rest.mutable_strings() = attribute.strings();
    word(rest.SerializeAsString());
    number(attribute.has_t() + attribute.tensors_size());
    if (attribute.has_t())
      declaration(attribute.t());
    for (const onnx::TensorProto &tensor : attribute.tensors())
      declaration(tensor);
    number(attribute.has_g() + attribute.graphs_size());
    if (attribute.has_g())
      graph(attribute.g());
    for (const onnx::GraphProto &entry : attribute.graphs())
      graph(entry);
  }
};

} // namespace

std::string identityOf(const Model &model) {
  Describer describer;
  describer.graph(model.graph());
  for (const onnx::FunctionProto &function : model.proto->functions()) {
    describer.text += function.domain() + " " + function.name() + " ";
    for (const onnx::NodeProto &node : function.node())
      describer.node(node);
  }
  return sha256Hex(describer.text);
}

} // namespace tbc::frontend

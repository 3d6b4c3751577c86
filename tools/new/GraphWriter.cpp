//===- GraphWriter.cpp - Writes an ONNX graph node by node ---------------------===//

#include "tools/new/GraphWriter.h"

#include <cctype>

namespace tbc::newmodel {

GraphWriter::GraphWriter(std::string name, std::string dataFile) : dataFile(std::move(dataFile)) {
  // Operator set 23 is the first with Attention, RotaryEmbedding and RMSNormalization.
  model.set_ir_version(11);
  model.set_producer_name("tbc new");
  model.add_opset_import()->set_version(23);
  model.mutable_graph()->set_name(name);
}

std::string GraphWriter::input(const std::string &name, const std::vector<std::string> &dims,
                               bool isFloat) {
  onnx::ValueInfoProto &info = *model.mutable_graph()->add_input();
  info.set_name(name);
  auto &type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(isFloat ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
  for (const std::string &dim : dims) {
    auto &entry = *type.mutable_shape()->add_dim();
    if (std::isdigit(static_cast<unsigned char>(dim[0])))
      entry.set_dim_value(std::stoll(dim));
    else
      entry.set_dim_param(dim);
  }
  return name;
}

void GraphWriter::output(const std::string &value, const std::string &name) {
  onnx::NodeProto &node = *model.mutable_graph()->add_node();
  node.set_op_type("Identity");
  node.set_name(name);
  node.add_input(value);
  node.add_output(name);
  onnx::ValueInfoProto &info = *model.mutable_graph()->add_output();
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
}

GraphWriter::Module::Module(GraphWriter &writer, const std::string &name)
    : writer(writer), length(writer.path.size()) {
  writer.modules.push_back(name);
  writer.path += (writer.path.empty() ? "" : ".") + name;
}

GraphWriter::Module::~Module() {
  writer.modules.pop_back();
  writer.path.resize(length);
}

std::string GraphWriter::weight(const std::string &name, const Ints &dims) {
  std::string whole = path.empty() ? name : path + "." + name;
  onnx::TensorProto &tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(whole);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  int64_t elements = 1;
  for (int64_t dim : dims) {
    tensor.add_dims(dim);
    elements *= dim;
  }
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto say = [&](const char *key, const std::string &value) {
    onnx::StringStringEntryProto &entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  const int64_t bytes = elements * int64_t(sizeof(float));
  say("location", dataFile);
  say("offset", std::to_string(end));
  say("length", std::to_string(bytes));
  end += bytes;
  parameters += elements;
  return whole;
}

std::string GraphWriter::ints(const Ints &values) {
  onnx::TensorProto &tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("ints_" + std::to_string(constants++));
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(int64_t(values.size()));
  for (int64_t value : values)
    tensor.add_int64_data(value);
  return tensor.name();
}

std::string GraphWriter::scalar(int64_t value) {
  onnx::TensorProto &tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("ints_" + std::to_string(constants++));
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_int64_data(value);
  return tensor.name();
}

std::string GraphWriter::constant(const Ints &dims, const std::vector<float> &values) {
  onnx::NodeProto &node = addNode("Constant", 1);
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  onnx::TensorProto &tensor = *attribute.mutable_t();
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (int64_t dim : dims)
    tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return node.output(0);
}

std::string GraphWriter::unique(const std::string &base) {
  int count = used[base]++;
  return count == 0 ? base : base + "_" + std::to_string(count);
}

onnx::NodeProto &GraphWriter::addNode(const std::string &type, size_t results) {
  std::string name = "/";
  for (const std::string &module : modules)
    name += module + "/";
  onnx::NodeProto &node = *model.mutable_graph()->add_node();
  node.set_op_type(type);
  node.set_name(unique(name + type));
  for (size_t i = 0; i < results; ++i)
    node.add_output(node.name() + "_output_" + std::to_string(i));
  return node;
}

std::vector<std::string> GraphWriter::ops(const std::string &type,
                                          const std::vector<std::string> &inputs, size_t results,
                                          const std::vector<Attribute> &attributes) {
  onnx::NodeProto &node = addNode(type, results);
  for (const std::string &input : inputs)
    node.add_input(input);
  for (const Attribute &attribute : attributes) {
    onnx::AttributeProto &proto = *node.add_attribute();
    proto.set_name(attribute.name);
    if (attribute.isText) {
      proto.set_type(onnx::AttributeProto::STRING);
      proto.set_s(attribute.text);
    } else if (attribute.isFloat) {
      proto.set_type(onnx::AttributeProto::FLOAT);
      proto.set_f(attribute.real);
    } else if (attribute.isList) {
      proto.set_type(onnx::AttributeProto::INTS);
      for (int64_t value : attribute.ints)
        proto.add_ints(value);
    } else {
      proto.set_type(onnx::AttributeProto::INT);
      proto.set_i(attribute.ints[0]);
    }
  }
  return {node.output().begin(), node.output().end()};
}

std::string GraphWriter::op(const std::string &type, const std::vector<std::string> &inputs,
                            const std::vector<Attribute> &attributes) {
  return ops(type, inputs, 1, attributes)[0];
}

std::string GraphWriter::linear(const std::string &x, const std::string &name, int64_t in,
                                int64_t out, bool hasBias) {
  Module module(*this, name);
  std::string y = tiedLinear(x, weight("weight", {out, in}));
  return hasBias ? op("Add", {y, weight("bias", {out})}) : y;
}

std::string GraphWriter::tiedLinear(const std::string &x, const std::string &table) {
  return op("MatMul", {x, op("Transpose", {table}, {{"perm", Ints{1, 0}}})});
}

std::string GraphWriter::layerNorm(const std::string &x, const std::string &name, int64_t width,
                                   bool hasBias, double epsilon) {
  Module module(*this, name);
  std::vector<std::string> inputs{x, weight("weight", {width})};
  if (hasBias)
    inputs.push_back(weight("bias", {width}));
  return op("LayerNormalization", inputs, {{"epsilon", float(epsilon)}});
}

std::string GraphWriter::rmsNorm(const std::string &x, const std::string &name, int64_t width,
                                 double epsilon) {
  Module module(*this, name);
  return op("RMSNormalization", {x, weight("weight", {width})}, {{"epsilon", float(epsilon)}});
}

std::string GraphWriter::embedding(const std::string &name, int64_t rows, int64_t width,
                                   const std::string &indices) {
  Module module(*this, name);
  return op("Gather", {weight("weight", {rows, width}), indices});
}

std::string GraphWriter::activation(const std::string &name, const std::string &x) {
  Module module(*this, "act");
  if (name == "silu")
    return op("Mul", {x, op("Sigmoid", {x})});
  if (name == "relu")
    return op("Relu", {x});
  if (name == "relu2") {
    std::string y = op("Relu", {x});
    return op("Mul", {y, y});
  }
  if (name == "gelu_new")
    return op("Gelu", {x}, {{"approximate", std::string("tanh")}});
  return op("Gelu", {x});
}

std::string GraphWriter::positionsOf(const std::string &x, int64_t dim) {
  std::string size = op("Shape", {x}, {{"start", dim}, {"end", dim + 1}});
  std::string count = op("Squeeze", {size, ints({0})});
  return op("Range", {scalar(0), count, scalar(1)});
}

} // namespace tbc::newmodel

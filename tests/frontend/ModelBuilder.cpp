//===- ModelBuilder.cpp - Small ONNX models for tests ----------------------===//

#include "tests/frontend/ModelBuilder.h"

#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <fstream>

namespace tbc::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tbc-test-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw std::runtime_error("cannot make a temporary folder");
  folder = name;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
std::string TemporaryFolder::write(const std::string &name, const std::string &bytes) const {
  std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << bytes;
  return path(name);
}

ModelBuilder::ModelBuilder(int64_t opset) {
  proto.set_ir_version(8);
  proto.add_opset_import()->set_version(opset);
  proto.mutable_graph()->set_name("test");
}

void ModelBuilder::input(const std::string &name, const std::vector<std::string> &dims,
                         bool isFloat) {
  onnx::ValueInfoProto &info = *proto.mutable_graph()->add_input();
  info.set_name(name);
  auto &type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(isFloat ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
  type.mutable_shape();
  for (const std::string &dim : dims) {
    auto &entry = *type.mutable_shape()->add_dim();
    if (std::isdigit(static_cast<unsigned char>(dim[0])))
      entry.set_dim_value(std::stoll(dim));
    else
      entry.set_dim_param(dim);
  }
}

void ModelBuilder::output(const std::string &name) {
  proto.mutable_graph()->add_output()->set_name(name);
}

static onnx::TensorProto &addTensor(onnx::ModelProto &proto, const std::string &name,
                                    const std::vector<int64_t> &dims, int type) {
  onnx::TensorProto &tensor = *proto.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (int64_t dim : dims)
    tensor.add_dims(dim);
  return tensor;
}

void ModelBuilder::floats(const std::string &name, const std::vector<int64_t> &dims,
                          const std::vector<float> &values) {
  addTensor(proto, name, dims, onnx::TensorProto::FLOAT)
      .set_raw_data(values.data(), values.size() * sizeof(float));
}

void ModelBuilder::ints(const std::string &name, const std::vector<int64_t> &dims,
                        const std::vector<int64_t> &values) {
  onnx::TensorProto &tensor = addTensor(proto, name, dims, onnx::TensorProto::INT64);
  for (int64_t value : values)
    tensor.add_int64_data(value);
}

onnx::TensorProto &ModelBuilder::external(const std::string &name, const std::vector<int64_t> &dims,
                                          const std::string &location, const std::string &offset,
                                          const std::string &length) {
  onnx::TensorProto &tensor = addTensor(proto, name, dims, onnx::TensorProto::FLOAT);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char *key, const std::string &value) {
    if (value.empty())
      return;
    onnx::StringStringEntryProto &entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", location);
  add("offset", offset);
  add("length", length);
  return tensor;
}

onnx::NodeProto &ModelBuilder::node(const std::string &type, const std::vector<std::string> &inputs,
                                    const std::vector<std::string> &outputs,
                                    const std::string &name) {
  onnx::NodeProto &node = *proto.mutable_graph()->add_node();
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string &input : inputs)
    node.add_input(input);
  for (const std::string &output : outputs)
    node.add_output(output);
  return node;
}

static onnx::AttributeProto &addAttr(onnx::NodeProto &node, const std::string &name,
                                     onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}
void ModelBuilder::attr(onnx::NodeProto &node, const std::string &name, int64_t value) {
  addAttr(node, name, onnx::AttributeProto::INT).set_i(value);
}
void ModelBuilder::attr(onnx::NodeProto &node, const std::string &name,
                        const std::vector<int64_t> &values) {
  onnx::AttributeProto &attribute = addAttr(node, name, onnx::AttributeProto::INTS);
  for (int64_t value : values)
    attribute.add_ints(value);
}
void ModelBuilder::attr(onnx::NodeProto &node, const std::string &name, const std::string &value) {
  addAttr(node, name, onnx::AttributeProto::STRING).set_s(value);
}

std::string importFileError(const std::string &path, const frontend::ImportOptions &options) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Result<frontend::ImportedModel> model = frontend::importOnnx(context, path, options);
  if (model)
    return "";
  // Options that do not fit the model are errors of the command line.
  if (model.error().code == ErrorCode::Usage)
    return model.error().message;
  EXPECT_EQ(int(model.error().code), int(ErrorCode::ModelRejected)) << model.error().message;
  EXPECT_NE(model.error().message.find(path), std::string::npos) << model.error().message;
  return model.error().message;
}

std::string importError(const std::string &bytes, const frontend::ImportOptions &options) {
  TemporaryFolder folder;
  return importFileError(folder.write("model.onnx", bytes), options);
}

} // namespace tbc::test

//===- ModelRunner.cpp - Runs small ONNX models ----------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "ir/Interpreter.h"

#include <numeric>

namespace tbc::test {

using kernels::Arith;

std::vector<double> ModelRunner::run(const ModelBuilder &builder, unsigned output) {
  frontend::ImportOptions given = options;
  if (given.batch == 0)
    given.batch = 2;
  for (const onnx::ValueInfoProto &input : builder.proto.graph().input())
    given.fix.insert({input.name(), "input"});
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("model.onnx", builder.bytes()), given);
  if (!imported)
    throw std::runtime_error(imported.error().message);
  model = std::move(*imported);
  llvm::SmallVector<kernels::Tensor> arguments;
  for (const frontend::ModelValue &input : model->inputs) {
    kernels::TensorType type{input.dtype, input.shape};
    std::vector<double> numbers(kernels::numElements(input.shape));
    std::iota(numbers.begin(), numbers.end(), 0);
    if (auto it = inputs.find(input.name); it != inputs.end())
      numbers = it->second;
    if (kernels::isFloat(input.dtype))
      arguments.push_back(kernels::Tensor::fromDoubles(type, Arith::F64, numbers));
    else
      arguments.push_back(
          kernels::Tensor::fromInts(type, std::vector<int64_t>(numbers.begin(), numbers.end())));
  }
  for (const frontend::ParameterSource &source : model->parameters)
    arguments.push_back(*frontend::loadParameter(source, Arith::F64));
  auto results = evaluateFunction(function(), arguments, Arith::F64);
  if (mlir::failed(results))
    throw std::runtime_error("evaluation failed");
  shape = (*results)[output].shape();
  return (*results)[output].toDoubles();
}

mlir::func::FuncOp ModelRunner::function() {
  return *model->module->getOps<mlir::func::FuncOp>().begin();
}

unsigned ModelRunner::count(llvm::StringRef mnemonic) {
  unsigned found = 0;
  model->module->walk(
      [&](mlir::Operation *op) { found += op->getName().stripDialect() == mnemonic; });
  return found;
}

onnx::NodeProto makeNode(const std::string &type, const std::vector<std::string> &inputs,
                         const std::vector<std::string> &outputs, const std::string &name) {
  onnx::NodeProto node;
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string &input : inputs)
    node.add_input(input);
  for (const std::string &output : outputs)
    node.add_output(output);
  return node;
}

void floatAttr(onnx::NodeProto &node, const std::string &name, float value) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
}

onnx::GraphProto &graphAttr(onnx::NodeProto &node, const std::string &name,
                            const std::vector<std::string> &inputs,
                            const std::vector<std::string> &outputs,
                            const std::vector<onnx::NodeProto> &nodes) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto &graph = *attribute.mutable_g();
  graph.set_name(name);
  for (const std::string &input : inputs)
    graph.add_input()->set_name(input);
  for (const std::string &output : outputs)
    graph.add_output()->set_name(output);
  for (const onnx::NodeProto &inner : nodes)
    *graph.add_node() = inner;
  return graph;
}

} // namespace tbc::test

//===- ModelRunner.h - Runs small ONNX models ------------------------------===//

#ifndef TBC_TESTS_FRONTEND_MODELRUNNER_H
#define TBC_TESTS_FRONTEND_MODELRUNNER_H

#include "tests/frontend/ModelBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <map>
#include <optional>

namespace tbc::test {

/// Imports models at batch 2 (or `options.batch`) and runs them in f64 on their own weights.
class ModelRunner {
public:
  frontend::ImportOptions options;
  /// Elements of inputs by name; absent inputs are 0, 1, 2 ...
  std::map<std::string, std::vector<double>> inputs;

  /// The output number `output`. Throws the error of the import.
  std::vector<double> run(const ModelBuilder &builder, unsigned output = 0);
  /// The function of the last model, and the number of its ops with a name.
  mlir::func::FuncOp function();
  unsigned count(llvm::StringRef mnemonic);

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::optional<frontend::ImportedModel> model;
  kernels::Shape shape;
};

onnx::NodeProto makeNode(const std::string &type, const std::vector<std::string> &inputs,
                         const std::vector<std::string> &outputs, const std::string &name = "");
/// Adds a float attribute.
void floatAttr(onnx::NodeProto &node, const std::string &name, float value);
/// Adds a graph attribute with inputs, outputs and nodes.
onnx::GraphProto &graphAttr(onnx::NodeProto &node, const std::string &name,
                            const std::vector<std::string> &inputs,
                            const std::vector<std::string> &outputs,
                            const std::vector<onnx::NodeProto> &nodes);

} // namespace tbc::test

#endif // TBC_TESTS_FRONTEND_MODELRUNNER_H

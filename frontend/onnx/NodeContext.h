//===- NodeContext.h - Inputs and attributes of one node -------------------===//

#ifndef TBC_FRONTEND_ONNX_NODECONTEXT_H
#define TBC_FRONTEND_ONNX_NODECONTEXT_H

#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/Indexing.h"
#include "frontend/onnx/Model.h"
#include "frontend/onnx/Structure.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace tbc::frontend {

struct OpImporter;

/// Runs the nodes of a body on `arguments`, one per input, and returns its outputs. `suffix`
/// distinguishes the op names of each run.
using RunBody = std::function<std::vector<Value>(
    const Body &body, const std::vector<Value> &arguments, const std::string &suffix)>;

/// One node with its inputs as values. Getters throw ImportError if the op's definition forbids a
/// value.
class NodeContext {
public:
  NodeContext(const Model &model, const GraphNode &graphNode, Emitter &emitter,
              std::vector<const Value *> inputs, RunBody runBody)
      : emitter(emitter), opset(graphNode.opset), runBody(std::move(runBody)), model(model),
        graphNode(graphNode), node(*graphNode.proto), inputs(std::move(inputs)),
        asked(this->inputs.size()), outputs(node.output_size()) {}

  Emitter &emitter;
  const int64_t opset;
  const RunBody runBody;

  /// The graph in attribute `attribute`; ImportError without one.
  const Body &body(llvm::StringRef attribute) const;
  bool hasBody(llvm::StringRef attribute) const;

  size_t numInputs() const { return inputs.size(); }
  bool hasInput(size_t i) const {
    if (i >= inputs.size())
      return false;
    asked[i] = true;
    return inputs[i];
  }
  /// Input `i` without reading it; null if it is omitted.
  const Value *given(size_t i) const { return i < inputs.size() ? inputs[i] : nullptr; }
  /// An input that is a tensor.
  const Value &input(size_t i) const;
  /// An input that is a sequence of tensors.
  const std::vector<Value> &sequence(size_t i) const;
  /// An input of either kind.
  const Value &anyInput(size_t i) const;
  const std::string &name() const { return graphNode.name; }
  /// The op of PyTorch that torch's newer exporter has written as this node; empty if unknown.
  /// Example: "aten.squeeze.dim".
  std::string torchOp() const;
  /// Argument `name` of the op of PyTorch that this node is written from, which is its `place`th
  /// one, as text: the newer exporter leaves some arguments out of the node, and keeps the call
  /// beside it. nullopt if the node is written from another op, or has the default. `op` is without
  /// its overload. Example: "0.1", for ("aten.cross_entropy_loss", 5, "label_smoothing").
  std::optional<std::string> torchArgument(llvm::StringRef op, size_t place,
                                           llvm::StringRef name) const;
  /// The same argument as a number; ImportError for another text.
  std::optional<double> torchNumber(llvm::StringRef op, size_t place, llvm::StringRef name) const;
  /// All inputs; ImportError if one is omitted.
  std::vector<Value> allInputs() const;
  /// An input that must be known: a list of integers.
  std::vector<int64_t> ints(size_t i) const;
  /// An input that must be known: one integer.
  int64_t integer(size_t i) const;
  /// An input that must be known: one number.
  double scalar(size_t i) const;

  size_t numOutputs() const { return outputs.size(); }
  /// Whether the graph names output `i`.
  bool wantsOutput(size_t i) const { return i < outputs.size() && !node.output(int(i)).empty(); }
  /// The name of input `i`; the op's for an attribute of older operator sets.
  const std::string &inputName(size_t i) const {
    return int(i) < node.input_size() ? node.input(int(i)) : node.op_type();
  }
  /// ImportError if the importer did not read one of the node's inputs or attributes: the op does
  /// not define it, or its importer does not support it.
  void requireAllAsked(llvm::StringRef unread) const;
  void setOutput(size_t i, Value value) {
    if (i < outputs.size())
      outputs[i] = std::move(value);
  }
  const std::vector<Value> &results() const { return outputs; }

  /// Imports the node on other inputs and takes the results. `axis`, if given, replaces the
  /// attribute; `withoutAxes` leaves `axes` out, which is an input then.
  void importAs(const OpImporter &importer, std::vector<const Value *> otherInputs,
                std::optional<int64_t> axis, bool withoutAxes);

  /// Sets the new value of state `name` after a step; it is also output `output` of the node.
  void setNewState(const std::string &name, DType dtype, mlir::Value value, size_t output) {
    newStates.push_back({name, value});
    setOutput(output, Value::ofTensor(dtype, value));
  }
  std::vector<std::pair<std::string, mlir::Value>> newStates;

  /// Getters of attributes. An attribute at its default is read as absent (AttributeDefaults.h).
  bool hasAttr(llvm::StringRef name) const { return find(name) != nullptr; }
  int64_t attrInt(llvm::StringRef name, int64_t defaultValue) const;
  double attrFloat(llvm::StringRef name, double defaultValue) const;
  std::string attrText(llvm::StringRef name, const std::string &defaultValue) const;
  std::vector<int64_t> attrInts(llvm::StringRef name, std::vector<int64_t> defaultValue) const;
  std::vector<double> attrFloats(llvm::StringRef name) const;
  /// A required tensor attribute.
  Value attrTensor(llvm::StringRef name) const;
  const onnx::AttributeProto *find(llvm::StringRef name) const;

  /// Returns axes, an attribute in older operator sets and input `i` in newer ones.
  std::vector<int64_t> axes(size_t i, llvm::StringRef name = "axes") const;
  bool hasAxes(size_t i, llvm::StringRef name = "axes") const {
    return hasInput(i) || hasAttr(name);
  }

  /// Adds a warning about this kind of node. It is printed once, with the number of nodes.
  void warn(const std::string &text) { warnings.push_back(text); }
  std::vector<std::string> warnings;

  /// Converts the node to the form of the newest operator sets: moved attributes become inputs, and
  /// operands broadcast as in numpy. ImportError for a form that is too old.
  void upgrade();

private:
  void addInput(size_t i, Value value);

  const Model &model;
  const GraphNode &graphNode;
  const onnx::NodeProto &node;
  std::vector<const Value *> inputs;
  mutable std::vector<bool> asked;
  mutable std::set<std::string> askedAttributes;
  std::vector<Value> outputs;
  std::deque<Value> added;
};

/// The way an op uses its operands; evidence of roles (Roles.h).
struct OperandUse {
  /// Bit i: operand i is a weight if it is an initializer.
  uint32_t weights = 0;
  /// Whether the result holds elements of operand 0, rearranged or converted.
  bool isView = false;
};

/// Operands `positions` are weights.
template <typename... Positions> constexpr OperandUse weightsAt(Positions... positions) {
  return {((uint32_t(1) << positions) | ...), false};
}
inline constexpr OperandUse kView = {0, true};

/// The importer of one kind of node: reads inputs, sets outputs.
struct OpImporter {
  const char *domain; // "" is the standard set
  const char *type;
  void (*import)(NodeContext &node);
  /// Attributes that the importer may leave unread, separated by spaces: they have no effect in the
  /// supported forms.
  const char *unread = "";
  OperandUse use = {};
};

/// The families; one file each in ops/, or Control.cpp.
llvm::ArrayRef<OpImporter> mathOps();
llvm::ArrayRef<OpImporter> activationOps();
llvm::ArrayRef<OpImporter> shapeOps();
llvm::ArrayRef<OpImporter> generatorOps();
llvm::ArrayRef<OpImporter> indexingOps();
llvm::ArrayRef<OpImporter> padOps();
llvm::ArrayRef<OpImporter> resizeOps();
llvm::ArrayRef<OpImporter> scatterOps();
llvm::ArrayRef<OpImporter> linearOps();
llvm::ArrayRef<OpImporter> reductionOps();
llvm::ArrayRef<OpImporter> normOps();
llvm::ArrayRef<OpImporter> convOps();
llvm::ArrayRef<OpImporter> poolOps();
llvm::ArrayRef<OpImporter> recurrentOps();
llvm::ArrayRef<OpImporter> trainingOps();
llvm::ArrayRef<OpImporter> attentionOps();
llvm::ArrayRef<OpImporter> linearAttentionOps();
llvm::ArrayRef<OpImporter> microsoftOps();
llvm::ArrayRef<OpImporter> controlOps();
llvm::ArrayRef<OpImporter> lossOps();
llvm::ArrayRef<OpImporter> quantizationOps();
llvm::ArrayRef<OpImporter> fourierOps();
llvm::ArrayRef<OpImporter> randomOps();
llvm::ArrayRef<OpImporter> sequenceOps();

/// Returns all families.
llvm::ArrayRef<llvm::ArrayRef<OpImporter>> opFamilies();

/// The importer of a kind of node, or nullptr.
const OpImporter *findImporter(const std::string &domain, const std::string &type);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_NODECONTEXT_H

//===- DroppedOffsets.cpp - Small offsets that an exporter left out -------===//

#include "frontend/onnx/DroppedOffsets.h"

#include "frontend/onnx/TorchCalls.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <set>

namespace tbc::frontend {
namespace {

class OffsetFinder {
public:
  explicit OffsetFinder(const Model &model);
  std::vector<std::string> find(const Model &model);

private:
  /// Whether `node` reads `input` in place of a sum of its call in PyTorch, and the file lacks it.
  bool readsInstead(const onnx::NodeProto &node, const std::string &input) const;
  bool isDropped(const std::string &read) const;

  /// All values of the graph, with the nodes that compute them.
  std::map<std::string, const onnx::NodeProto *> values;
  /// The results and the operands of the calls of all nodes.
  std::set<std::string> results, named;
};

OffsetFinder::OffsetFinder(const Model &model) {
  for (const onnx::ValueInfoProto *input : model.inputs)
    values[input->name()] = nullptr;
  for (const auto &entry : model.initializers)
    values[entry.first] = nullptr;
  for (const GraphNode &node : model.nodes) {
    for (const std::string &output : node.proto->output())
      values[output] = node.proto;
    auto keep = [&](const std::string &text, const std::vector<std::string> &reads) {
      results.insert(llvm::StringRef(text).split(' ').first.ltrim('%').str());
      named.insert(reads.begin(), reads.end());
    };
    forEachTorchCall(*node.proto, keep);
  }
}

bool OffsetFinder::isDropped(const std::string &read) const {
  return (isTorchResultOf("add", read) || isTorchResultOf("sub", read)) && !values.count(read) &&
         !results.count(read);
}

bool OffsetFinder::readsInstead(const onnx::NodeProto &node, const std::string &input) const {
  auto source = values.find(input);
  if (source == values.end() || !source->second)
    return false;
  bool isFound = false;
  auto look = [&](const std::string &text, const std::vector<std::string> &reads) {
    // One call may be several nodes, and the inner ones read values of the same call.
    bool isInner = false;
    auto compare = [&](const std::string &other, const std::vector<std::string> &) {
      isInner |= other == text;
    };
    forEachTorchCall(*source->second, compare);
    if (isInner || llvm::is_contained(reads, input) ||
        llvm::none_of(reads, [&](const auto &read) { return isDropped(read); }))
      return;
    // The optimizer also joins equal sums and keeps one of them. Its other readers name it.
    const std::string &op = source->second->op_type();
    isFound |= (op != "Add" && op != "Sub") || !named.count(input);
  };
  forEachTorchCall(node, look);
  return isFound;
}

/// Returns the number of the input at whose zero a derivative is infinite, or -1.
int singularInput(llvm::StringRef op) {
  static const llvm::StringMap<int> inputs{{"Div", 1},        {"Log", 0},      {"Pow", 0},
                                           {"Reciprocal", 0}, {"ReduceL2", 0}, {"ReduceLogSum", 0},
                                           {"Sqrt", 0}};
  auto it = inputs.find(op);
  return it == inputs.end() ? -1 : it->second;
}

std::vector<std::string> OffsetFinder::find(const Model &model) {
  static const llvm::StringSet<> movements{"Cast",  "Expand",  "Identity",  "Reshape",
                                           "Slice", "Squeeze", "Transpose", "Unsqueeze"};
  std::vector<std::string> readers;
  std::set<std::string> moved; // what movements make of values with such an offset
  for (const GraphNode &node : model.nodes) {
    const onnx::NodeProto &proto = *node.proto;
    const bool isMovement = movements.contains(proto.op_type());
    const int singular = isMovement ? 0 : singularInput(proto.op_type());
    if (singular < 0 || singular >= proto.input_size())
      continue;
    const std::string &input = proto.input(singular);
    if (!moved.count(input) && !readsInstead(proto, input))
      continue;
    if (isMovement)
      moved.insert(proto.output(0));
    else
      readers.push_back(node.name);
  }
  return readers;
}

} // namespace

std::vector<std::string> droppedOffsetWarnings(const Model &model) {
  const std::vector<std::string> readers = OffsetFinder(model).find(model);
  if (readers.empty())
    return {};
  const std::string others =
      readers.size() > 1 ? " and " + std::to_string(readers.size() - 1) + " more" : "";
  return {"node '" + readers[0] + "'" + others +
          ": the exporter has dropped a number up to 1e-8 that PyTorch adds to what is read there, "
          "such as 1e-8 in log(x + 1e-8), so gradients at zero are infinite or NaN; "
          "torch.onnx.export(..., optimize=False) keeps it"};
}

} // namespace tbc::frontend

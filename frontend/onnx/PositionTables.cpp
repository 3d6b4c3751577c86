//===- PositionTables.cpp - Lengths of tables of positions -----------------===//

#include "frontend/onnx/PositionTables.h"

#include "frontend/onnx/Value.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace tbc::frontend {

namespace {

/// How far the positions of a node chain are off from 0, 1, 2 ...
class PositionOffsets {
public:
  /// `others`: the inputs without the dim of the sequence.
  PositionOffsets(const Model &model, const std::set<std::string> &others)
      : model(model), fromOther(others) {
    for (const GraphNode &node : model.nodes) {
      const bool isOther = llvm::any_of(
          node.proto->input(), [&](const std::string &name) { return fromOther.count(name) != 0; });
      for (const std::string &output : node.proto->output()) {
        producers[output] = node.proto;
        if (isOther)
          fromOther.insert(output);
      }
    }
  }

  /// Returns the first position in `name`. Example: 2 for cumsum(mask) - 1 + 2, as in OPT.
  int64_t of(const std::string &name, int depth = 0) const {
    auto it = producers.find(name);
    if (it == producers.end() || depth == maxDepth)
      return 0;
    const onnx::NodeProto &node = *it->second;
    const std::string &type = node.op_type();
    auto operand = [&](int i) { return of(node.input(i), depth + 1); };
    if (type == "CumSum") // counts from 1
      return 1;
    if (node.input_size() == 2 && (type == "Add" || type == "Sub")) {
      std::optional<int64_t> left = number(node.input(0)), right = number(node.input(1));
      if (right)
        return operand(0) + (type == "Add" ? *right : -*right);
      return left && type == "Add" ? operand(1) + *left : 0;
    }
    if (node.input_size() == 2 && type == "Mul") // by a mask of ones
      return std::max(operand(0), operand(1));
    return isMove(type) ? operand(0) : 0;
  }

  /// Returns the tensor of the file that `name` is: an initializer, or the value of a Constant, as
  /// the older exporter writes tables that are no buffers. nullptr if it is computed.
  const onnx::TensorProto *tableOf(const std::string &name) const {
    if (auto it = model.initializers.find(name); it != model.initializers.end())
      return it->second;
    auto made = producers.find(name);
    if (made != producers.end() && made->second->op_type() == "Constant")
      for (const onnx::AttributeProto &attribute : made->second->attribute())
        if (attribute.name() == "value")
          return &attribute.t();
    return nullptr;
  }

  /// Returns n where `name` is the length of a tensor plus n. Dim 0 of a tensor may be the batch,
  /// so it is no length; nor are dims of tensors made from other inputs than sequences, such as the
  /// patches of a picture. Example: 1 for x.shape[1] + 1.
  std::optional<int64_t> pastLength(const std::string &name, int depth = 0) const {
    auto it = producers.find(name);
    if (it == producers.end() || depth == maxDepth)
      return std::nullopt;
    const onnx::NodeProto &node = *it->second;
    const std::string &type = node.op_type();
    if (type == "Shape")
      return isOneDim(node) && !fromOther.count(node.input(0)) ? std::optional<int64_t>(0)
                                                               : std::nullopt;
    if (type == "Gather" && node.input_size() == 2) {
      auto made = producers.find(node.input(0));
      const bool isLength = made != producers.end() && made->second->op_type() == "Shape" &&
                            !fromOther.count(made->second->input(0)) &&
                            number(node.input(1)).value_or(0) != 0;
      return isLength ? std::optional<int64_t>(0) : std::nullopt;
    }
    if (type == "Add" && node.input_size() == 2)
      for (int i : {0, 1})
        if (std::optional<int64_t> more = number(node.input(i)))
          if (std::optional<int64_t> rest = pastLength(node.input(1 - i), depth + 1))
            return *rest + *more;
    return isMove(type) && type != "Slice" ? pastLength(node.input(0), depth + 1) : std::nullopt;
  }

  /// Returns the number of positions in a table that `node` slices up to a length. Example: 64 for
  /// cos[:length] of a table [64, 8].
  std::optional<int64_t> slicedLength(const onnx::NodeProto &node) const {
    if (node.op_type() != "Slice" || node.input_size() < 4 || number(node.input(1)) != 0 ||
        (node.input_size() > 4 && number(node.input(4)) != 1))
      return std::nullopt;
    const onnx::TensorProto *table = tableOf(node.input(0));
    std::optional<int64_t> axis = number(node.input(3)), more = pastLength(node.input(2));
    if (!table || !axis || !more)
      return std::nullopt;
    if (*axis < 0)
      *axis += table->dims_size();
    // One row is broadcast to any length.
    if (*axis < 0 || *axis >= table->dims_size() || table->dims(int(*axis)) <= 1)
      return std::nullopt;
    return table->dims(int(*axis)) - *more;
  }

  /// Returns the length of the list in the file that `name` is a part of, if it is one. Example: 64
  /// for position_ids[:, :length] of YOSO, which has numbers 2 to 65. A list that is repeated may
  /// be read at more places.
  std::optional<int64_t> listLength(const std::string &name, int depth = 0) const {
    auto it = producers.find(name);
    if (it != producers.end()) {
      const std::string &type = it->second->op_type();
      const bool isPart = isMove(type) && type != "Expand" && type != "Tile";
      return isPart && depth < maxDepth ? listLength(it->second->input(0), depth + 1)
                                        : std::nullopt;
    }
    auto list = model.initializers.find(name);
    if (list == model.initializers.end())
      return std::nullopt;
    return kernels::numElements(shapeOfTensor(*list->second));
  }

  /// Returns true if `name` is made from bounded distances or their logarithms, so that it does not
  /// grow with the length. Example: buckets of T5's relative positions.
  bool isBounded(const std::string &name, int depth = 0) const {
    auto it = producers.find(name);
    if (it == producers.end() || depth == maxDepth)
      return false;
    static const std::set<std::string> bounds = {"Abs", "Clip", "Log", "Min"};
    if (bounds.count(it->second->op_type()))
      return true;
    return llvm::any_of(it->second->input(),
                        [&](const std::string &input) { return isBounded(input, depth + 1); });
  }

  /// Returns true if `name` is one number everywhere. Examples: token types, of a model that makes
  /// zeros where it is given none; the 1 of `table[1]`.
  bool isOneNumber(const std::string &name, int depth = 0) const {
    auto it = producers.find(name);
    if (it == producers.end() || depth == maxDepth)
      return false;
    const std::string &type = it->second->op_type();
    return type == "ConstantOfShape" || (type == "Constant" && number(name)) ||
           (isMove(type) && isOneNumber(it->second->input(0), depth + 1));
  }

  /// Returns true if the indices of `node` choose rows of its first input, one index for each.
  bool readsRows(const onnx::NodeProto &node) const {
    if (node.input_size() != 2 || node.op_type() == "Gather")
      return node.input_size() == 2;
    auto it = producers.find(node.input(1));
    return node.op_type() == "GatherND" && it != producers.end() &&
           it->second->op_type() == "Unsqueeze" && it->second->input_size() == 2 &&
           number(it->second->input(1)) == -1;
  }

private:
  static constexpr int maxDepth = 16;

  static bool isMove(const std::string &type) {
    static const std::set<std::string> moves = {"Cast",  "Expand",  "Identity", "Reshape",
                                                "Slice", "Squeeze", "Tile",     "Unsqueeze"};
    return moves.count(type) != 0;
  }

  /// Returns true if `shape`, a node Shape, has one dim, which is not the first.
  static bool isOneDim(const onnx::NodeProto &shape) {
    int64_t start = 0, end = 0;
    for (const onnx::AttributeProto &attribute : shape.attribute())
      (attribute.name() == "start" ? start : end) = attribute.i();
    return start != 0 && end == start + 1;
  }

  /// The only element of an integer constant, also behind changes of its shape.
  std::optional<int64_t> number(const std::string &name, int depth = 0) const {
    const onnx::TensorProto *tensor = tableOf(name);
    auto made = producers.find(name);
    if (!tensor && made != producers.end() && depth < maxDepth &&
        (made->second->op_type() == "Unsqueeze" || made->second->op_type() == "Squeeze"))
      return number(made->second->input(0), depth + 1);
    if (!tensor || tensor->data_type() != onnx::TensorProto::INT64)
      return std::nullopt;
    for (int64_t size : tensor->dims())
      if (size != 1)
        return std::nullopt;
    return fullInts(Value::ofKnown(DType::I64, readTensor(model, *tensor)))[0];
  }

  const Model &model;
  std::map<std::string, const onnx::NodeProto *> producers;
  /// The tensors that are made from inputs without the dim of the sequence.
  std::set<std::string> fromOther;
};

} // namespace

std::optional<int64_t> positionTableLength(const Model &model, const std::set<std::string> &held,
                                           const std::set<std::string> &others) {
  std::set<std::string> fromData;
  for (const onnx::ValueInfoProto *input : model.inputs)
    if (!held.count(input->name()))
      fromData.insert(input->name());
  PositionOffsets offsets(model, others);
  std::optional<int64_t> length;
  for (const GraphNode &node : model.nodes) {
    const onnx::NodeProto &proto = *node.proto;
    if (offsets.readsRows(proto) && !fromData.count(proto.input(1))) {
      const onnx::TensorProto *table = offsets.tableOf(proto.input(0));
      if (table && table->dims_size() == 2 && table->data_type() != onnx::TensorProto::INT64 &&
          table->dims(0) > 1 && !offsets.tableOf(proto.input(1)) &&
          !offsets.isBounded(proto.input(1)) && !offsets.isOneNumber(proto.input(1))) {
        int64_t positions = table->dims(0) - offsets.of(proto.input(1));
        positions = std::min(positions, offsets.listLength(proto.input(1)).value_or(positions));
        if (positions > 0)
          length = std::min(length.value_or(positions), positions);
      }
    }
    if (std::optional<int64_t> positions = offsets.slicedLength(proto); positions && *positions > 0)
      length = std::min(length.value_or(*positions), *positions);
    bool readsRuntime = false;
    for (const std::string &input : proto.input())
      readsRuntime |= fromData.count(input) != 0;
    if (readsRuntime && proto.op_type() != "Shape" && proto.op_type() != "Size")
      for (const std::string &output : proto.output())
        fromData.insert(output);
  }
  return length;
}

} // namespace tbc::frontend

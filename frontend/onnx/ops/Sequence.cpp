//===- Sequence.cpp - Sequences of tensors and optional tensors --------------===//
//
// A sequence exists at import alone: positions and lengths follow from shapes and constants, so
// every op on it selects, joins or rearranges tensors. Exporters write sequences for split, chunk
// and unbind, and for lists that a loop fills.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/ops/Families.h"

namespace tbc::frontend {

namespace {

constexpr int64_t maxSequence = 4096;

/// Returns the known position in input `i`, counted from the front, in 0 .. `limit`. Example: -1
/// in a sequence of 3 is 2.
int64_t positionIn(const NodeContext &node, size_t i, int64_t size, int64_t limit) {
  int64_t given = node.integer(i), position = given < 0 ? given + size : given;
  if (position < 0 || position > limit)
    throw ImportError("position " + std::to_string(given) + " is not in a sequence of " +
                      std::to_string(size) + " tensors");
  return position;
}

void importConstruct(NodeContext &node) { node.setOutput(0, Value::ofSequence(node.allInputs())); }

void importEmpty(NodeContext &node) {
  node.attrInt("dtype", 0); // that of the tensors to come
  node.setOutput(0, Value::ofSequence({}));
}

void importAt(NodeContext &node) {
  const std::vector<Value> &values = node.sequence(0);
  auto size = int64_t(values.size());
  node.setOutput(0, values[size_t(positionIn(node, 1, size, size - 1))]);
}

void importInsert(NodeContext &node) {
  std::vector<Value> values = node.sequence(0);
  auto size = int64_t(values.size());
  if (size >= maxSequence)
    throw ImportError("makes a sequence of more than " + std::to_string(maxSequence) + " tensors");
  int64_t position = node.hasInput(2) ? positionIn(node, 2, size, size) : size;
  values.insert(values.begin() + position, node.input(1));
  node.setOutput(0, Value::ofSequence(std::move(values)));
}

void importErase(NodeContext &node) {
  std::vector<Value> values = node.sequence(0);
  auto size = int64_t(values.size());
  if (size == 0)
    throw ImportError("takes a tensor from an empty sequence");
  int64_t position = node.hasInput(1) ? positionIn(node, 1, size, size - 1) : size - 1;
  values.erase(values.begin() + position);
  node.setOutput(0, Value::ofSequence(std::move(values)));
}

void importLength(NodeContext &node) {
  node.setOutput(0, Value::ofKnown(DType::I64, Known::ofInt(int64_t(node.sequence(0).size()))));
}

/// Returns the sizes of the parts of a dim of `size`: those listed in input 1, or parts of one size
/// of which the last may be smaller.
std::vector<int64_t> partsOf(const NodeContext &node, int64_t size) {
  if (node.hasInput(1) && node.input(1).rank() > 0)
    return node.ints(1);
  int64_t each = node.hasInput(1) ? node.integer(1) : 1;
  if (each < 1)
    throw ImportError("splits into parts of size " + std::to_string(each));
  if (size / each > maxSequence)
    throw ImportError("splits into more than " + std::to_string(maxSequence) + " tensors");
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < size; begin += each)
    sizes.push_back(std::min(each, size - begin));
  return sizes;
}

void importSplitToSequence(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &value = node.input(0);
  unsigned axis = checkAxis(node.attrInt("axis", 0), value.rank());
  // Without it, and without sizes of parts, the dim of size 1 leaves.
  bool keepsDim = node.attrInt("keepdims", 1) != 0 || node.hasInput(1);
  if (e.dependsOnBatch(value.shape[axis]))
    throw ImportError("splits the batch into its samples. " + perSampleRemedy());
  std::vector<Value> values;
  int64_t begin = 0;
  for (int64_t size : partsOf(node, value.shape[axis])) {
    if (size < 0 || size > value.shape[axis] - begin)
      throw ImportError("splits a dim of size " + std::to_string(value.shape[axis]) +
                        " into parts that do not fit");
    Value part = slice(e, value, axis, begin, 1, size);
    values.push_back(keepsDim ? part : squeeze(e, part, {axis}));
    begin += size;
  }
  if (begin != value.shape[axis])
    throw ImportError("splits a dim of size " + std::to_string(value.shape[axis]) +
                      " into parts of " + std::to_string(begin) + " in all");
  node.setOutput(0, Value::ofSequence(std::move(values)));
}

void importConcatFromSequence(NodeContext &node) {
  std::vector<Value> values = node.sequence(0);
  if (values.empty())
    throw ImportError("joins a sequence without tensors");
  bool addsDim = node.attrInt("new_axis", 0) != 0;
  unsigned axis = checkAxis(node.attrInt("axis", 0), int64_t(values[0].rank()) + addsDim);
  if (addsDim)
    for (Value &value : values)
      value = unsqueeze(value, {axis});
  node.setOutput(0, concat(node.emitter, values, axis));
}

/// Runs the body on each tensor of the first sequence, with the tensor at its place of the other
/// sequences, and with whole tensors.
void importSequenceMap(NodeContext &node) {
  const Body &body = node.body("body");
  size_t count = node.sequence(0).size();
  std::vector<std::vector<Value>> collected(body.outputs.size());
  for (size_t at = 0; at < count; ++at) {
    std::vector<Value> arguments;
    for (size_t i = 0; i < node.numInputs(); ++i) {
      const Value &value = node.anyInput(i);
      if (value.sequence && value.sequence->size() != count)
        throw ImportError("maps sequences of " + std::to_string(count) + " and " +
                          std::to_string(value.sequence->size()) + " tensors");
      arguments.push_back(value.sequence ? (*value.sequence)[at] : value);
    }
    std::vector<Value> results = node.runBody(body, arguments, "[" + std::to_string(at) + "]");
    for (size_t k = 0; k < results.size(); ++k)
      collected[k].push_back(results[k]);
  }
  for (size_t k = 0; k < collected.size(); ++k)
    node.setOutput(k, Value::ofSequence(std::move(collected[k])));
}

//===- optional values -----------------------------------------------------===//

/// An optional tensor is the tensor. One without a tensor is only understood as an omitted input.
void importOptional(NodeContext &node) {
  if (!node.hasInput(0))
    throw ImportError("makes an optional value without a tensor; export the model without it");
  node.setOutput(0, node.anyInput(0));
}

void importGetElement(NodeContext &node) { node.setOutput(0, node.anyInput(0)); }

void importHasElement(NodeContext &node) {
  node.setOutput(0, Value::ofSplat(DType::Bool, {}, node.hasInput(0)));
}

} // namespace

llvm::ArrayRef<OpImporter> sequenceOps() {
  static const OpImporter ops[] = {
      {"", "ConcatFromSequence", importConcatFromSequence},
      {"", "Optional", importOptional, "type"},
      {"", "OptionalGetElement", importGetElement},
      {"", "OptionalHasElement", importHasElement},
      {"", "SequenceAt", importAt},
      {"", "SequenceConstruct", importConstruct},
      {"", "SequenceEmpty", importEmpty},
      {"", "SequenceErase", importErase},
      {"", "SequenceInsert", importInsert},
      {"", "SequenceLength", importLength},
      {"", "SequenceMap", importSequenceMap},
      {"", "SplitToSequence", importSplitToSequence},
  };
  return ops;
}

} // namespace tbc::frontend

//===- Indexing.cpp - Select elements by index or by order -----------------===//

#include "frontend/onnx/Detach.h"
#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

void requireIndices(const Value &value) {
  if (kernels::isFloat(value.dtype) || value.dtype == DType::Bool)
    throw ImportError("needs integer indices, not " + std::string(kernels::name(value.dtype)));
}

Value gatherElements(Emitter &emitter, const Value &data, const Value &indices, unsigned axis) {
  return Value::ofTensor(data.dtype, emitter.createOne("gather_elements",
                                                       {emitter.full(data), emitter.full(indices)},
                                                       emitter.type(data.dtype, indices.shape),
                                                       {emitter.integer("dim", axis)}));
}

namespace {

//===- order ---------------------------------------------------------------===//

/// Selects the first `k` elements along a dim in descending or ascending order.
struct Top {
  Value values, indices;
};
Top top(Emitter &emitter, const Value &value, unsigned axis, int64_t k, bool largest) {
  if (k < 1 || k > value.shape[axis])
    throw ImportError("takes the first " + std::to_string(k) + " of " +
                      std::to_string(value.shape[axis]) + " elements");
  std::vector<unsigned> dims;
  mlir::Value input = coreWith(emitter, value, {axis}, dims);
  int64_t dim = llvm::find(dims, axis) - dims.begin();
  Value shape = value;
  shape.shape[axis] = k;
  shape.dims = dims;
  Shape coreShape = shape.coreShape();
  mlir::Operation *op = emitter.create(
      "topk", {input}, {emitter.type(value.dtype, coreShape), emitter.type(DType::I64, coreShape)},
      {emitter.integer("dim", dim), emitter.flag("largest", largest)});
  return {Value::ofCore(value.dtype, shape.shape, dims, op->getResult(0)),
          Value::ofCore(DType::I64, shape.shape, dims, op->getResult(1))};
}

void importTopK(NodeContext &node) {
  const Value &value = node.input(0);
  // The sorted order is valid for unsorted results too.
  Top result = top(node.emitter, value, checkAxis(node.attrInt("axis", -1), value.rank()),
                   node.integer(1), node.attrInt("largest", 1) != 0);
  node.setOutput(0, result.values);
  node.setOutput(1, result.indices);
}

/// Returns the index of the largest or smallest element; among equals the first, or the last if
/// `select_last_index`.
void importArg(NodeContext &node, bool largest) {
  Emitter &emitter = node.emitter;
  Value value = node.input(0);
  unsigned axis = checkAxis(node.attrInt("axis", 0), value.rank());
  bool last = node.attrInt("select_last_index", 0) != 0;
  int64_t size = value.shape[axis];
  if (last)
    value = slice(emitter, value, axis, size - 1, -1, size);
  Value index = top(emitter, value, axis, 1, largest).indices;
  if (last)
    index = elementwise(emitter, "sub", {number(index, double(size - 1)), index});
  node.setOutput(0, node.attrInt("keepdims", 1) ? index : squeeze(emitter, index, {axis}));
}

//===- choice --------------------------------------------------------------===//

/// Returns `rows` without a gradient where `indices` are the padding_idx of F.embedding: torch's
/// newer exporter keeps it beside the node, and PyTorch never changes that row of the table.
Value withoutPadding(const NodeContext &node, const Value &rows, const Value &indices) {
  Emitter &e = node.emitter;
  if (node.torchArgument("aten.embedding", 3, "scale_grad_by_freq") == "True")
    throw ImportError(
        "is an embedding with scale_grad_by_freq, whose gradient counts how often the "
        "batch reads each row, which is not supported; export it without");
  const double padding = node.torchNumber("aten.embedding", 2, "padding_idx").value_or(-1);
  if (padding < 0)
    return rows;
  if (indices.isKnown() && kernels::numElements(indices.shape) <= kMaxKnownElements &&
      !llvm::is_contained(fullInts(indices), int64_t(padding)))
    return rows;
  Value isPadding = compare(e, "eq", indices, number(indices, padding));
  return select(e, unsqueeze(isPadding, {unsigned(indices.rank())}), detach(e, rows), rows);
}

void importGather(NodeContext &node) {
  const Value &data = node.input(0), &indices = node.input(1);
  requireIndices(indices);
  Value rows = gather(node.emitter, data, indices, checkAxis(node.attrInt("axis", 0), data.rank()));
  node.setOutput(0, withoutPadding(node, rows, indices));
}

void importGatherNd(NodeContext &node) {
  requireIndices(node.input(1));
  node.setOutput(
      0, gatherNd(node.emitter, node.input(0), node.input(1), node.attrInt("batch_dims", 0)));
}

/// Returns the message for more indices than elements in a dim that is not the one chosen from.
static std::string readsOutside(const Emitter &emitter, unsigned dim, int64_t indices,
                                int64_t data) {
  std::string text = "reads outside of dim " + std::to_string(dim);
  if (!emitter.dependsOnBatch(indices) || emitter.dependsOnBatch(data))
    return text + ", which has " + std::to_string(data) + " of " + std::to_string(indices) +
           " elements";
  return text + ": its indices have the batch there, and its data " + std::to_string(data) +
         ", perhaps the batch of the export; export the model with a dynamic batch dim";
}

void importGatherElements(NodeContext &node) {
  Value data = node.input(0);
  const Value &indices = node.input(1);
  requireIndices(indices);
  unsigned axis = checkAxis(node.attrInt("axis", 0), data.rank());
  if (indices.rank() != data.rank())
    throw ImportError("needs indices of the data's rank");
  // Dims of the data may be larger than those of the indices; the rest is unused.
  for (unsigned dim = 0; dim < data.rank(); ++dim) {
    if (dim == axis)
      continue;
    if (indices.shape[dim] > data.shape[dim])
      throw ImportError(readsOutside(node.emitter, dim, indices.shape[dim], data.shape[dim]));
    data = slice(node.emitter, data, dim, 0, 1, indices.shape[dim]);
  }
  node.setOutput(0, gatherElements(node.emitter, data, indices, axis));
}

/// Reverses positions along dim `time` within the first sequence_lens[b] of sample b. Example:
/// length 3 of 4 maps 0, 1, 2, 3 to 2, 1, 0, 3.
void importReverseSequence(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &data = node.input(0);
  requireIndices(node.input(1));
  unsigned batch = checkAxis(node.attrInt("batch_axis", 1), data.rank());
  unsigned time = checkAxis(node.attrInt("time_axis", 0), data.rank());
  if (batch == time || node.input(1).shape != Shape{data.shape[batch]})
    throw ImportError("needs a length for each sample");
  Value length = cast(emitter, node.input(1), DType::I64);
  std::vector<unsigned> behind;
  for (unsigned dim = 1; dim < data.rank() - batch; ++dim)
    behind.push_back(dim);
  length = unsqueeze(length, behind);
  Value place = positions(data.shape, time), last = positions(data.shape, time, 1);
  Value mirrored = elementwise(emitter, "sub", {length, last});
  Value chosen = select(emitter, compare(emitter, "lt", place, length), mirrored, place);
  node.setOutput(0, gatherElements(emitter, data, expand(emitter, chosen, data.shape), time));
}

/// Selects the elements with a true known condition.
void importCompress(NodeContext &node) {
  Value data = node.input(0);
  std::vector<int64_t> condition = node.ints(1), places;
  for (size_t i = 0; i < condition.size(); ++i)
    if (condition[i])
      places.push_back(int64_t(i));
  unsigned axis = 0;
  if (node.hasAttr("axis"))
    axis = checkAxis(node.attrInt("axis", 0), data.rank());
  else
    data = reshape(node.emitter, data, {saturatedElements(data.shape)});
  node.setOutput(0, gather(node.emitter, data, Value::ofInts(std::move(places)), axis));
}

/// Returns the coordinates of nonzero elements, one per column.
void importNonZero(NodeContext &node) {
  const Value &value = node.input(0);
  if (!value.isKnown())
    throw ImportError("the number of its results depends on data; shapes must follow from the "
                      "shapes of the inputs");
  Known full = fullKnown(value);
  std::vector<Shape> found;
  forEachIndex(value.shape, [&](const Shape &index) {
    if (full.isFloat() ? full.realAt(index) != 0 : full.intAt(index) != 0)
      found.push_back(index);
  });
  std::vector<int64_t> elements;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    for (const Shape &index : found)
      elements.push_back(index[dim]);
  node.setOutput(0, Value::ofKnown(DType::I64, Known::ofInts({value.rank(), int64_t(found.size())},
                                                             std::move(elements))));
}

/// values[1] if the index equals the position along a new dim, else values[0].
void importOneHot(NodeContext &node) {
  Emitter &emitter = node.emitter;
  Value indices = cast(emitter, node.input(0), DType::I64);
  const Value &depths = node.input(1), &values = node.input(2);
  if (!depths.isSplat() || values.shape != Shape{2})
    throw ImportError("needs a constant depth and two values");
  double depth = depths.splatReal();
  if (!(depth >= 1 && depth <= 0x1p40))
    throw ImportError("has depth " + std::to_string(depth));
  unsigned axis = checkAxis(node.attrInt("axis", -1), indices.rank() + 1);
  indices = unsqueeze(indices, {axis});
  Shape shape = indices.shape;
  shape[axis] = int64_t(depth);
  auto isAt = [&](int64_t offset) {
    return compare(emitter, "eq", indices, positions(shape, axis, offset));
  };
  Value chosen = isAt(0);
  // Negative indices count from the end; those of a topk are never negative.
  mlir::Operation *origin = indices.ir ? indices.ir.getDefiningOp() : nullptr;
  while (origin && origin->getName().stripDialect() == "cast")
    origin = origin->getOperand(0).getDefiningOp();
  bool isPlace = origin && origin->getName().stripDialect() == "topk";
  if (indices.isKnown() ? llvm::any_of(fullInts(indices), [](int64_t i) { return i < 0; })
                        : !isPlace)
    chosen = elementwise(emitter, "or", {chosen, isAt(-shape[axis])});
  auto value = [&](int64_t i) { return squeeze(emitter, slice(emitter, values, 0, i, 1, 1), {0}); };
  node.setOutput(0, select(emitter, chosen, value(1), value(0)));
}

} // namespace

llvm::ArrayRef<OpImporter> indexingOps() {
  static const OpImporter ops[] = {
      {"", "ArgMax", [](NodeContext &node) { importArg(node, true); }},
      {"", "ArgMin", [](NodeContext &node) { importArg(node, false); }},
      {"", "Compress", importCompress},
      {"", "Gather", importGather, "", weightsAt(0)},
      {"", "GatherElements", importGatherElements},
      {"", "GatherND", importGatherNd},
      {"", "NonZero", importNonZero},
      {"", "OneHot", importOneHot},
      {"", "ReverseSequence", importReverseSequence},
      {"", "TopK", importTopK, "sorted"}, // sorted is one of the orders allowed for unsorted
  };
  return ops;
}

} // namespace tbc::frontend

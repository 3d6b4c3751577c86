//===- Indexing.cpp - Elements chosen by index or by order -----------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

namespace {

void requireIndices(const Value &value) {
  if (kernels::isFloat(value.dtype) || value.dtype == DType::Bool)
    throw ImportError("needs integer indices, not " + std::string(kernels::name(value.dtype)));
}

//===- order ---------------------------------------------------------------===//

/// The first `k` elements along a dim in descending or ascending order.
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
  std::vector<int64_t> k = node.ints(1);
  if (k.size() != 1)
    throw ImportError("K must be one number");
  // Where the order does not matter, the sorted one will do.
  Top result = top(node.emitter, value, checkAxis(node.attrInt("axis", -1), value.rank()), k[0],
                   node.attrInt("largest", 1) != 0);
  node.setOutput(0, result.values);
  node.setOutput(1, result.indices);
}

/// The index of the largest or smallest element; of equals the first, or the last if
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

void importGather(NodeContext &node) {
  requireIndices(node.input(1));
  const Value &data = node.input(0);
  node.setOutput(0, gather(node.emitter, data, node.input(1),
                           checkAxis(node.attrInt("axis", 0), data.rank())));
}

void importGatherNd(NodeContext &node) {
  requireIndices(node.input(1));
  node.setOutput(
      0, gatherNd(node.emitter, node.input(0), node.input(1), node.attrInt("batch_dims", 0)));
}

} // namespace

llvm::ArrayRef<OpImporter> indexingOps() {
  static const OpImporter ops[] = {
      {"", "ArgMax", [](NodeContext &node) { importArg(node, true); }},
      {"", "ArgMin", [](NodeContext &node) { importArg(node, false); }},
      {"", "Gather", importGather},
      {"", "GatherND", importGatherNd},
      {"", "TopK", importTopK},
  };
  return ops;
}

} // namespace tbc::frontend

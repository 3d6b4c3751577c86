//===- Reduction.cpp - Sums, means and extremes over dims ------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace tbc::frontend {

namespace {

/// The shape after a reduction.
Shape reducedShape(const Shape &shape, const std::vector<unsigned> &axes, bool keepDims) {
  Shape result;
  for (unsigned dim = 0; dim < shape.size(); ++dim) {
    if (!llvm::is_contained(axes, dim))
      result.push_back(shape[dim]);
    else if (keepDims)
      result.push_back(1);
  }
  return result;
}

/// A known tensor, reduced element by element.
Value reduceKnown(llvm::StringRef mnemonic, const Value &value, const std::vector<unsigned> &axes,
                  bool keepDims) {
  Known full = fullKnown(value);
  Shape kept = value.shape;
  for (unsigned axis : axes)
    kept[axis] = 1;
  auto run = [&](auto initial, auto at, auto combine) {
    using T = decltype(initial);
    std::vector<T> result(kernels::numElements(kept), initial);
    std::vector<bool> seen(result.size(), false);
    forEachIndex(value.shape, [&](const Shape &index) {
      int64_t to = 0;
      for (unsigned dim = 0; dim < kept.size(); ++dim)
        to = to * kept[dim] + (kept[dim] == 1 ? 0 : index[dim]);
      T element = at(index);
      result[to] = seen[to] ? combine(result[to], element) : element;
      seen[to] = true;
    });
    return result;
  };
  auto combine = [&](auto a, auto b) -> decltype(a) {
    return mnemonic == "reduce_sum"    ? sumOf(a, b)
           : mnemonic == "reduce_prod" ? productOf(a, b)
           : mnemonic == "reduce_max"  ? std::max(a, b)
                                       : std::min(a, b);
  };
  Shape shape = reducedShape(value.shape, axes, keepDims);
  if (full.isFloat())
    return Value::ofKnown(
        value.dtype,
        Known::ofReals(shape, run(
                                  mnemonic == "reduce_prod" ? 1.0 : 0.0,
                                  [&](const Shape &i) { return full.realAt(i); }, combine)));
  return Value::ofKnown(
      value.dtype,
      Known::ofInts(shape, run(
                               int64_t(mnemonic == "reduce_prod"),
                               [&](const Shape &i) { return full.intAt(i); }, combine)));
}

} // namespace

Value reduce(Emitter &emitter, llvm::StringRef mnemonic, const Value &value,
             const std::vector<unsigned> &axes, bool keepDims) {
  if (value.isKnown())
    return reduceKnown(mnemonic, value, axes, keepDims);
  llvm::SmallVector<int64_t> coreAxes;
  std::vector<unsigned> dims;
  Shape coreShape;
  int64_t repeats = 1;
  for (unsigned axis : axes)
    if (value.coreDim(axis) < 0)
      repeats *= value.shape[axis];
  for (auto [core, dim] : llvm::enumerate(value.dims)) {
    if (llvm::is_contained(axes, dim)) {
      coreAxes.push_back(core);
      continue;
    }
    unsigned before = llvm::count_if(axes, [d = dim](unsigned axis) { return axis < d; });
    dims.push_back(keepDims ? dim : dim - before);
    coreShape.push_back(value.shape[dim]);
  }
  Shape shape = reducedShape(value.shape, axes, keepDims);
  mlir::Value core = emitter.core(value);
  if (!coreAxes.empty())
    core = emitter.createOne(mnemonic, {core}, emitter.type(value.dtype, coreShape),
                             {emitter.integers("dims", coreAxes)});
  Value result = Value::ofCore(value.dtype, shape, dims, core);
  if (mnemonic != "reduce_sum" || repeats == 1)
    return result;
  if (emitter.dependsOnBatch(repeats))
    throw ImportError("adds up copies of one value over the batch, so its meaning depends on the "
                      "batch size");
  return elementwise(emitter, "mul", {result, number(result, double(repeats))});
}

Value reduceMean(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                 bool keepDims) {
  // Along dims that repeat, the mean is the value.
  Value once = value;
  int64_t count = 1;
  for (unsigned axis : axes) {
    if (value.coreDim(axis) < 0 && !value.isKnown())
      once.shape[axis] = 1;
    count *= once.shape[axis];
  }
  Value sum = reduce(emitter, "reduce_sum", once, axes, keepDims);
  if (count == 0)
    throw ImportError("takes the mean of no elements");
  if (!emitter.dependsOnBatch(count))
    return elementwise(emitter, "div", {sum, number(sum, double(count))});
  int64_t perSample = count / emitter.marker;
  if (emitter.dependsOnBatch(perSample))
    throw ImportError("takes a mean over the batch twice");
  mlir::Value divisor = emitter.createOne(
      "factor_size", {}, emitter.type(value.dtype, {}),
      {emitter.integer("count", perSample), emitter.integer("samples", emitter.marker)});
  return elementwise(emitter, "div", {sum, Value::ofCore(value.dtype, {}, {}, divisor)});
}

namespace {

/// The axes of a reduction; nothing if it leaves its input as it is.
std::optional<std::vector<unsigned>> reductionAxes(NodeContext &node) {
  unsigned rank = node.input(0).rank();
  std::vector<int64_t> axes = node.hasAxes(1) ? node.axes(1) : std::vector<int64_t>();
  if (axes.empty() && node.attrInt("noop_with_empty_axes", 0))
    return std::nullopt;
  if (axes.empty())
    for (unsigned dim = 0; dim < rank; ++dim)
      axes.push_back(dim);
  return checkAxes(axes, rank);
}

void importReduction(NodeContext &node, llvm::StringRef mnemonic) {
  const Value &value = node.input(0);
  auto axes = reductionAxes(node);
  if (!axes)
    return node.setOutput(0, value);
  bool keepDims = node.attrInt("keepdims", 1) != 0;
  if (!value.isKnown() && mnemonic == "reduce_prod")
    throw ImportError("ReduceProd of computed data is not supported");
  if (!value.isKnown() && mnemonic == "reduce_min") {
    Value negative = elementwise(node.emitter, "neg", {value});
    Value largest = reduce(node.emitter, "reduce_max", negative, *axes, keepDims);
    return node.setOutput(0, elementwise(node.emitter, "neg", {largest}));
  }
  node.setOutput(0, reduce(node.emitter, mnemonic, value, *axes, keepDims));
}

void importReduceMean(NodeContext &node) {
  auto axes = reductionAxes(node);
  node.setOutput(
      0, axes ? reduceMean(node.emitter, node.input(0), *axes, node.attrInt("keepdims", 1) != 0)
              : node.input(0));
}

/// Sum of squares, or its root.
void importSumSquare(NodeContext &node, bool root) {
  const Value &value = node.input(0);
  Value square = elementwise(node.emitter, "mul", {value, value});
  auto axes = reductionAxes(node);
  if (axes)
    square = reduce(node.emitter, "reduce_sum", square, *axes, node.attrInt("keepdims", 1) != 0);
  node.setOutput(0, root ? elementwise(node.emitter, "sqrt", {square}) : square);
}

} // namespace

llvm::ArrayRef<OpImporter> reductionOps() {
  static const OpImporter ops[] = {
      {"", "ReduceSum", [](NodeContext &node) { importReduction(node, "reduce_sum"); }},
      {"", "ReduceMax", [](NodeContext &node) { importReduction(node, "reduce_max"); }},
      {"", "ReduceMin", [](NodeContext &node) { importReduction(node, "reduce_min"); }},
      {"", "ReduceProd", [](NodeContext &node) { importReduction(node, "reduce_prod"); }},
      {"", "ReduceMean", importReduceMean},
      {"", "ReduceSumSquare", [](NodeContext &node) { importSumSquare(node, false); }},
      {"", "ReduceL2", [](NodeContext &node) { importSumSquare(node, true); }},
  };
  return ops;
}

} // namespace tbc::frontend

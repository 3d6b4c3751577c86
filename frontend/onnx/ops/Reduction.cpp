//===- Reduction.cpp - Sums, means, products and extremes over dims --------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

/// Reduces a known tensor element by element.
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
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!full.isFloat() && value.dtype != DType::Bool && full.numElements() == 0 &&
      mnemonic != "reduce_sum" && mnemonic != "reduce_prod")
    throw ImportError("takes the largest or smallest of no integers");
  if (full.isFloat())
    return Value::ofKnown(
        value.dtype,
        Known::ofReals(shape, run(
                                  mnemonic == "reduce_prod"  ? 1.0
                                  : mnemonic == "reduce_max" ? -infinity
                                  : mnemonic == "reduce_min" ? infinity
                                                             : 0.0,
                                  [&](const Shape &i) { return full.realAt(i); }, combine)));
  return Value::ofKnown(
      value.dtype,
      Known::ofInts(shape, run(
                               int64_t(mnemonic == "reduce_prod" || mnemonic == "reduce_min"),
                               [&](const Shape &i) { return full.intAt(i); }, combine)));
}

/// The core of `value` as a value of its own.
Value coreOf(const Value &value) { return Value::ofKnown(value.dtype, *value.known); }

} // namespace

Value reduce(Emitter &emitter, llvm::StringRef mnemonic, const Value &value,
             const std::vector<unsigned> &axes, bool keepDims) {
  llvm::SmallVector<int64_t> coreAxes;
  std::vector<unsigned> dims;
  Shape coreShape;
  int64_t repeats = 1;
  for (unsigned axis : axes)
    if (value.coreDim(axis) < 0)
      repeats *= value.shape[axis];
  // Copies of a known value are not listed. Example: a mask of ones over [batch, 4096].
  bool hasCopies = value.dims.size() < value.shape.size() && repeats > 0;
  if (value.isKnown() && (!hasCopies || (mnemonic == "reduce_prod" && repeats != 1)))
    return reduceKnown(mnemonic, value, axes, keepDims);
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
  if (value.isKnown()) {
    Value core = reduceKnown(mnemonic, coreOf(value), {coreAxes.begin(), coreAxes.end()}, false);
    Value result = Value::ofKnown(value.dtype, shape, dims, *core.known);
    if (mnemonic != "reduce_sum" || repeats == 1)
      return result;
    return elementwise(emitter, "mul", {result, number(result, double(repeats))});
  }
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
  // The mean along repeated dims is the value.
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
  int64_t perSample = count;
  unsigned batches = 0;
  for (; emitter.dependsOnBatch(perSample); perSample /= emitter.marker)
    ++batches;
  // A factor_size counts samples once, so a mean over pairs of samples divides by two of them.
  for (unsigned i = 0; i < batches; ++i) {
    mlir::Value divisor = emitter.createOne("factor_size", {}, emitter.type(value.dtype, {}),
                                            {emitter.integer("count", i == 0 ? perSample : 1),
                                             emitter.integer("samples", emitter.marker)});
    sum = elementwise(emitter, "div", {sum, Value::ofCore(value.dtype, {}, {}, divisor)});
  }
  return sum;
}

/// Multiplies the halves of the dim until its size is 1. Example: size 8 takes 3 multiplications.
static Value multiplyUp(Emitter &emitter, Value value, unsigned axis) {
  if (emitter.dependsOnBatch(value.shape[axis]))
    throw ImportError("multiplies over the batch, so its meaning depends on the batch size");
  while (value.shape[axis] > 1) {
    int64_t size = value.shape[axis], half = size / 2;
    Value product = elementwise(
        emitter, "mul",
        {slice(emitter, value, axis, 0, 1, half), slice(emitter, value, axis, half, 1, half)});
    value = size % 2 == 0
                ? product
                : concat(emitter, {product, slice(emitter, value, axis, size - 1, 1, 1)}, axis);
  }
  return value;
}

Value reduceProduct(Emitter &emitter, Value value, const std::vector<unsigned> &axes,
                    bool keepDims) {
  if (value.isKnown())
    return reduce(emitter, "reduce_prod", value, axes, keepDims);
  for (unsigned axis : axes)
    value = multiplyUp(emitter, value, axis);
  return keepDims ? value : squeeze(emitter, value, axes);
}

namespace {

/// Returns the axes of a reduction; null if it returns its input unchanged.
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

bool keepsDims(NodeContext &node) { return node.attrInt("keepdims", 1) != 0; }

/// Reduces input 0 over the node's axes, by sum or by `mnemonic`.
Value reduceInput(NodeContext &node, llvm::StringRef mnemonic, const Value &value) {
  auto axes = reductionAxes(node);
  return axes ? reduce(node.emitter, mnemonic, value, *axes, keepsDims(node)) : value;
}

/// The smallest element, as the largest in reversed order.
Value reduceMin(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                bool keepDims) {
  if (value.isKnown())
    return reduce(emitter, "reduce_min", value, axes, keepDims);
  auto reversed = [&](const Value &x) {
    if (x.dtype == DType::Bool)
      return elementwise(emitter, "not", {x});
    if (kernels::isFloat(x.dtype))
      return elementwise(emitter, "neg", {x});
    // -1 - x, or the largest unsigned number minus x: reverses the order without overflow.
    Value bits = Value::ofKnown(x.dtype, Known::ofInt(kernels::wrapTo(x.dtype, -1)));
    return elementwise(emitter, "sub", {bits, x});
  };
  return reversed(reduce(emitter, "reduce_max", reversed(value), axes, keepDims));
}

void importReduction(NodeContext &node, llvm::StringRef mnemonic) {
  node.setOutput(0, reduceInput(node, mnemonic, node.input(0)));
}

void importReduceMin(NodeContext &node) {
  auto axes = reductionAxes(node);
  node.setOutput(0, axes ? reduceMin(node.emitter, node.input(0), *axes, keepsDims(node))
                         : node.input(0));
}

void importReduceProd(NodeContext &node) {
  auto axes = reductionAxes(node);
  node.setOutput(0, axes ? reduceProduct(node.emitter, node.input(0), *axes, keepsDims(node))
                         : node.input(0));
}

void importReduceMean(NodeContext &node) {
  auto axes = reductionAxes(node);
  const Value &value = node.input(0);
  if (!axes)
    return node.setOutput(0, value);
  node.setOutput(0, reduceMean(node.emitter, value, *axes, keepsDims(node)));
}

/// Sum of squares, or its root.
void importSumSquare(NodeContext &node, bool root) {
  Formula f{node.emitter};
  Value sum = reduceInput(node, "reduce_sum", f.mul(node.input(0), node.input(0)));
  if (root && !kernels::isFloat(sum.dtype))
    sum = cast(f.emitter, f.sqrt(cast(f.emitter, sum, DType::F64)), sum.dtype);
  else if (root)
    sum = f.sqrt(sum);
  node.setOutput(0, sum);
}

void importReduceL1(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, reduceInput(node, "reduce_sum", f.abs(node.input(0))));
}

void importLogSum(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, f.log(reduceInput(node, "reduce_sum", node.input(0))));
}

/// m + log(sum(exp(x - m))) with the largest element m, or m = 0 if that is infinite.
void importLogSumExp(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  auto axes = reductionAxes(node);
  if (!axes)
    return node.setOutput(0, x);
  if (x.isKnown())
    return node.setOutput(0, f.log(reduceInput(node, "reduce_sum", f.exp(x))));
  Value largest = reduce(f.emitter, "stabilizer_max", x, *axes, true);
  Value isFinite = f.compare("eq", f.sub(largest, largest), number(x, 0));
  largest = f.select(isFinite, largest, number(x, 0));
  Value sum = reduce(f.emitter, "reduce_sum", f.exp(f.sub(x, largest)), *axes, true);
  Value result = f.add(largest, f.log(sum));
  node.setOutput(0, keepsDims(node) ? result : squeeze(f.emitter, result, *axes));
}

} // namespace

llvm::ArrayRef<OpImporter> reductionOps() {
  static const OpImporter ops[] = {
      {"", "ReduceSum", [](NodeContext &node) { importReduction(node, "reduce_sum"); }},
      {"", "ReduceMax", [](NodeContext &node) { importReduction(node, "reduce_max"); }},
      {"", "ReduceMin", importReduceMin},
      {"", "ReduceProd", importReduceProd},
      {"", "ReduceL1", importReduceL1},
      {"", "ReduceLogSum", importLogSum},
      {"", "ReduceLogSumExp", importLogSumExp},
      {"", "ReduceMean", importReduceMean},
      {"", "ReduceSumSquare", [](NodeContext &node) { importSumSquare(node, false); }},
      {"", "ReduceL2", [](NodeContext &node) { importSumSquare(node, true); }},
  };
  return ops;
}

} // namespace tbc::frontend

//===- Shape.cpp - Shapes, constants and rearrangements --------------------===//

#include "frontend/onnx/NodeContext.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tbc::frontend {

namespace {

void importConstant(NodeContext &node) {
  if (node.hasAttr("value"))
    return node.setOutput(0, node.attrTensor("value"));
  if (node.hasAttr("value_int"))
    return node.setOutput(0,
                          Value::ofKnown(DType::I64, Known::ofInt(node.attrInt("value_int", 0))));
  if (node.hasAttr("value_ints"))
    return node.setOutput(0, Value::ofInts(node.attrInts("value_ints", {})));
  if (const onnx::AttributeProto *real = node.find("value_float"))
    return node.setOutput(0, Value::ofKnown(DType::F32, Known::ofReal(real->f())));
  if (node.hasAttr("value_floats")) {
    std::vector<double> elements = node.attrFloats("value_floats");
    Shape shape{int64_t(elements.size())};
    return node.setOutput(0,
                          Value::ofKnown(DType::F32, Known::ofReals(shape, std::move(elements))));
  }
  throw ImportError("holds neither a tensor nor numbers");
}

void importShape(NodeContext &node) {
  const Shape &shape = node.input(0).shape;
  int64_t rank = shape.size();
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(node.attrInt("start", 0)), end = clamp(node.attrInt("end", rank));
  std::vector<int64_t> sizes;
  for (int64_t dim = start; dim < end; ++dim)
    sizes.push_back(shape[dim]);
  node.setOutput(0, Value::ofInts(std::move(sizes)));
}

void importSize(NodeContext &node) {
  int64_t size = 1;
  for (int64_t dim : node.input(0).shape)
    if (__builtin_mul_overflow(size, dim, &size))
      throw ImportError("the size of its input overflows");
  node.setOutput(0, Value::ofKnown(DType::I64, Known::ofInt(size)));
}

/// A shape that a node makes; ImportError for negative sizes.
Shape checkedShape(const std::vector<int64_t> &sizes) {
  for (int64_t size : sizes)
    if (size < 0)
      throw ImportError("asks for a dim of size " + std::to_string(size));
  if (sizes.size() > ScanLimits().rank)
    throw ImportError("asks for a tensor of rank " + std::to_string(sizes.size()));
  return sizes;
}

void importConstantOfShape(NodeContext &node) {
  Shape shape = checkedShape(node.ints(0));
  Value fill =
      node.hasAttr("value") ? node.attrTensor("value") : Value::ofSplat(DType::F32, {1}, 0);
  if (!fill.isSplat())
    throw ImportError("attribute 'value' must hold one element");
  node.setOutput(0, Value::ofKnown(fill.dtype, shape, {}, *fill.known));
}

void importRange(NodeContext &node) {
  const Value &first = node.input(0);
  if (kernels::isFloat(first.dtype)) {
    double start = node.scalar(0), limit = node.scalar(1), step = node.scalar(2);
    double count = std::ceil((limit - start) / step);
    if (!(count <= double(kMaxKnownElements)))
      throw ImportError("counts through too many steps");
    std::vector<double> elements;
    for (int64_t i = 0; i < count; ++i)
      elements.push_back(kernels::roundTo(first.dtype, start + double(i) * step));
    Shape shape{int64_t(elements.size())};
    return node.setOutput(0,
                          Value::ofKnown(first.dtype, Known::ofReals(shape, std::move(elements))));
  }
  int64_t start = node.integer(0), limit = node.integer(1), step = node.integer(2);
  if (step == 0)
    throw ImportError("counts in steps of 0");
  __int128 span = __int128(limit) - start;
  __int128 count = span / step + (span % step != 0 && (span < 0) == (step < 0));
  if (count > (int64_t(1) << 40))
    throw ImportError("counts through too many steps");
  int64_t size = std::max<int64_t>(int64_t(count), 0);
  node.setOutput(0, Value::ofKnown(first.dtype, size == 0
                                                    ? Known::ofInts({0}, {})
                                                    : Known::affine({size}, start, {step}, false)));
}

void importReshape(NodeContext &node) {
  const Value &value = node.input(0);
  std::vector<int64_t> target = node.ints(1);
  bool allowZero = node.attrInt("allowzero", 0) != 0;
  int64_t inferred = -1;
  __int128 elements = 1, known = 1;
  for (int64_t size : value.shape)
    elements *= size;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && !allowZero) {
      if (i >= value.shape.size())
        throw ImportError("copies dim " + std::to_string(i) + " of a tensor of rank " +
                          std::to_string(value.rank()));
      target[i] = value.shape[i];
    }
    if (target[i] == -1) {
      if (inferred >= 0)
        throw ImportError("leaves two dims open");
      inferred = i;
      continue;
    }
    if (target[i] < 0)
      throw ImportError("asks for a dim of size " + std::to_string(target[i]));
    known *= target[i];
    if (known > (__int128(1) << 62))
      throw ImportError("asks for more than 2^62 elements");
  }
  auto mismatch = [&] {
    return ImportError("reshapes " + printShape(value.shape, node.emitter.marker) + " to " +
                       printShape(target, node.emitter.marker) +
                       ", which has another number of elements. If the model was exported with a "
                       "fixed batch size, export it with a dynamic batch dim");
  };
  if (inferred >= 0) {
    if (known == 0 || elements % known != 0)
      throw mismatch();
    target[inferred] = int64_t(elements / known);
  } else if (known != elements) {
    throw mismatch();
  }
  node.setOutput(0, reshape(node.emitter, value, checkedShape(target)));
}

void importFlatten(NodeContext &node) {
  const Value &value = node.input(0);
  int64_t axis = node.attrInt("axis", 1), rank = value.rank();
  if (axis < -rank || axis > rank)
    throw ImportError("axis " + std::to_string(axis) + " is out of range");
  axis += axis < 0 ? rank : 0;
  Shape shape{1, 1};
  for (int64_t dim = 0; dim < rank; ++dim)
    shape[dim >= axis] *= value.shape[dim];
  node.setOutput(0, reshape(node.emitter, value, shape));
}

void importSqueeze(NodeContext &node) {
  const Value &value = node.input(0);
  std::vector<unsigned> axes;
  if (node.hasAxes(1)) {
    axes = checkAxes(node.axes(1), value.rank());
  } else {
    for (unsigned dim = 0; dim < value.rank(); ++dim)
      if (value.shape[dim] == 1)
        axes.push_back(dim);
  }
  node.setOutput(0, squeeze(node.emitter, value, axes));
}

void importUnsqueeze(NodeContext &node) {
  const Value &value = node.input(0);
  std::vector<int64_t> axes = node.axes(1);
  node.setOutput(0, unsqueeze(value, checkAxes(axes, value.rank() + axes.size())));
}

void importExpand(NodeContext &node) {
  const Value &value = node.input(0);
  Value target;
  target.shape = checkedShape(node.ints(1));
  Shape shape = broadcastShapes({value, target}, node.emitter.marker);
  node.setOutput(0, expand(node.emitter, value, shape));
}

void importTranspose(NodeContext &node) {
  const Value &value = node.input(0);
  std::vector<int64_t> reversed;
  for (int64_t dim = value.rank(); dim-- > 0;)
    reversed.push_back(dim);
  std::vector<int64_t> permutation = node.attrInts("perm", reversed);
  if (permutation.size() != value.rank() ||
      checkAxes(permutation, value.rank()).size() != value.rank())
    throw ImportError("perm does not list the dims of a tensor of rank " +
                      std::to_string(value.rank()));
  std::vector<unsigned> dims;
  for (int64_t dim : permutation)
    dims.push_back(checkAxis(dim, value.rank()));
  node.setOutput(0, transpose(node.emitter, value, dims));
}

void importConcat(NodeContext &node) {
  std::vector<Value> values = node.allInputs();
  for (const Value &value : values)
    if (value.dtype != values[0].dtype)
      throw ImportError("joins tensors of different types");
  if (!node.hasAttr("axis"))
    throw ImportError("attribute 'axis' is missing");
  unsigned axis = checkAxis(node.attrInt("axis", 0), values[0].rank());
  node.setOutput(0, concat(node.emitter, values, axis));
}

void importSplit(NodeContext &node) {
  const Value &value = node.input(0);
  unsigned axis = checkAxis(node.attrInt("axis", 0), value.rank());
  int64_t size = value.shape[axis], parts = node.numOutputs();
  if (parts == 0)
    throw ImportError("has no outputs");
  std::vector<int64_t> sizes;
  if (node.hasInput(1)) {
    sizes = node.ints(1);
  } else {
    // The last part is the smaller one.
    int64_t each = (size + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::max<int64_t>(0, std::min(each, size - i * each)));
  }
  int64_t total = 0;
  for (int64_t part : sizes)
    if (part < 0 || __builtin_add_overflow(total, part, &total))
      throw ImportError("splits into parts of negative size");
  if (int64_t(sizes.size()) != parts || total != size)
    throw ImportError("splits a dim of size " + std::to_string(size) + " into " +
                      std::to_string(sizes.size()) + " parts of " + std::to_string(total) +
                      " in all");
  int64_t offset = 0;
  for (int64_t i = 0; i < parts; ++i) {
    if (node.wantsOutput(i))
      node.setOutput(i, slice(node.emitter, value, axis, offset, 1, sizes[i]));
    offset += sizes[i];
  }
}

void importSlice(NodeContext &node) {
  Value value = node.input(0);
  std::vector<int64_t> starts = node.ints(1), ends = node.ints(2), axes, steps;
  for (int64_t i = 0; i < int64_t(starts.size()); ++i)
    axes.push_back(i);
  if (node.hasInput(3))
    axes = node.ints(3);
  steps.assign(starts.size(), 1);
  if (node.hasInput(4))
    steps = node.ints(4);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    throw ImportError("starts, ends, axes and steps have different lengths");
  checkAxes(axes, value.rank());
  for (size_t i = 0; i < starts.size(); ++i) {
    unsigned axis = checkAxis(axes[i], value.rank());
    int64_t size = value.shape[axis], step = steps[i];
    if (step == 0)
      throw ImportError("slices in steps of 0");
    // As numpy: out-of-range bounds are clamped; backwards, position -1 is in front of the first.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
    int64_t start = clamp(starts[i]), end = clamp(ends[i]);
    if (step < 0 && ends[i] < -size)
      end = -1;
    __int128 span = __int128(end) - start;
    __int128 count = step > 0 ? (span + step - 1) / step : (span + step + 1) / step;
    value = slice(node.emitter, value, axis, start, step, count > 0 ? int64_t(count) : 0);
  }
  node.setOutput(0, value);
}

/// Repeats along each dim: a new dim in front of it, then both become one.
void importTile(NodeContext &node) {
  Value value = node.input(0);
  std::vector<int64_t> repeats = checkedShape(node.ints(1));
  if (repeats.size() != value.rank())
    throw ImportError("has " + std::to_string(repeats.size()) + " repeats for a tensor of rank " +
                      std::to_string(value.rank()));
  std::vector<unsigned> added;
  Shape expanded, shape;
  for (unsigned dim = 0; dim < value.rank(); ++dim) {
    added.push_back(2 * dim);
    expanded.push_back(repeats[dim]);
    expanded.push_back(value.shape[dim]);
    shape.push_back(0);
    if (__builtin_mul_overflow(repeats[dim], value.shape[dim], &shape.back()))
      throw ImportError("makes more than 2^63 elements");
  }
  value = expand(node.emitter, unsqueeze(value, added), expanded);
  node.setOutput(0, reshape(node.emitter, value, shape));
}

/// The upper (j >= i + k) or lower (j <= i + k) triangle; zero elsewhere.
void importTrilu(NodeContext &node) {
  const Value &value = node.input(0);
  if (value.rank() < 2)
    throw ImportError("needs a matrix");
  int64_t k = node.hasInput(1) ? node.integer(1) : 0;
  unsigned rows = value.rank() - 2, columns = value.rank() - 1;
  auto index = [&](unsigned dim, int64_t offset) {
    return Value::ofKnown(DType::I64, value.shape, {dim},
                          Known::affine({value.shape[dim]}, offset, {1}, false));
  };
  Value keep = compare(node.emitter, node.attrInt("upper", 1) ? "ge" : "le", index(columns, 0),
                       index(rows, k));
  node.setOutput(0, select(node.emitter, keep, value, number(value, 0)));
}

void importCumSum(NodeContext &node) {
  const Value &value = node.input(0);
  unsigned axis = checkAxis(node.integer(1), value.rank());
  if (node.attrInt("exclusive", 0) || node.attrInt("reverse", 0))
    throw ImportError("CumSum with exclusive or reverse is not supported");
  if (!value.isKnown())
    throw ImportError("CumSum of computed data is not supported");
  int core = value.coreDim(axis);
  if (core < 0 && value.isSplat() && !value.known->isFloat()) { // c, 2c, 3c ...
    int64_t step = value.splatInt();
    Known sums = Known::affine({value.shape[axis]}, step, {step}, false);
    return node.setOutput(0, Value::ofKnown(value.dtype, value.shape, {axis}, sums));
  }
  Known full = fullKnown(value);
  int64_t inner = 1;
  for (unsigned dim = axis + 1; dim < value.rank(); ++dim)
    inner *= value.shape[dim];
  auto accumulate = [&](auto elements) {
    for (int64_t i = 0; i < int64_t(elements.size()); ++i)
      if (i / inner % value.shape[axis] != 0)
        elements[i] = sumOf(elements[i], elements[i - inner]);
    return elements;
  };
  node.setOutput(
      0, Value::ofKnown(value.dtype, full.isFloat()
                                         ? Known::ofReals(value.shape, accumulate(full.reals()))
                                         : Known::ofInts(value.shape, accumulate(full.ints()))));
}

void importPad(NodeContext &node) {
  Value value = node.input(0);
  if (node.attrText("mode", "constant") != "constant")
    throw ImportError("Pad in mode '" + node.attrText("mode", "") + "' is not supported");
  if (node.hasInput(2) && node.scalar(2) != 0)
    throw ImportError("Pad with a value other than 0 is not supported");
  std::vector<int64_t> pads = node.ints(1), axes;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    axes.push_back(dim);
  if (node.hasInput(3))
    axes = node.ints(3);
  checkAxes(axes, value.rank());
  if (pads.size() != 2 * axes.size())
    throw ImportError("has " + std::to_string(pads.size()) + " pads for " +
                      std::to_string(axes.size()) + " dims");
  for (size_t i = 0; i < axes.size(); ++i) {
    unsigned axis = checkAxis(axes[i], value.rank());
    int64_t low = pads[i], high = pads[i + axes.size()], size = value.shape[axis];
    int64_t first = std::max<int64_t>(0, -low), last = size - std::max<int64_t>(0, -high);
    if (low < -size || high < -size || last < first)
      throw ImportError("cuts away more than there is");
    value = slice(node.emitter, value, axis, first, 1, last - first);
    low = std::max<int64_t>(low, 0), high = std::max<int64_t>(high, 0);
    if (low == 0 && high == 0)
      continue;
    std::vector<unsigned> dims = value.dims;
    if (value.coreDim(axis) < 0)
      dims.insert(llvm::upper_bound(dims, axis), axis);
    unsigned core = llvm::find(dims, axis) - dims.begin();
    mlir::Value input = node.emitter.at(value, dims);
    Shape shape = value.shape;
    if (__builtin_add_overflow(shape[axis], low, &shape[axis]) ||
        __builtin_add_overflow(shape[axis], high, &shape[axis]))
      throw ImportError("makes more than 2^63 elements");
    Value padded = Value::ofCore(value.dtype, shape, dims, {});
    padded.ir =
        node.emitter.createOne("pad", {input}, node.emitter.type(value.dtype, padded.coreShape()),
                               {node.emitter.integer("dim", core), node.emitter.integer("low", low),
                                node.emitter.integer("high", high)});
    value = padded;
  }
  node.setOutput(0, value);
}

} // namespace

llvm::ArrayRef<OpImporter> shapeOps() {
  static const OpImporter ops[] = {
      {"", "Concat", importConcat},
      {"", "Constant", importConstant},
      {"", "ConstantOfShape", importConstantOfShape},
      {"", "CumSum", importCumSum},
      {"", "Expand", importExpand},
      {"", "Flatten", importFlatten},
      {"", "Pad", importPad},
      {"", "Range", importRange},
      {"", "Reshape", importReshape},
      {"", "Shape", importShape},
      {"", "Size", importSize},
      {"", "Slice", importSlice},
      {"", "Split", importSplit},
      {"", "Squeeze", importSqueeze},
      {"", "Tile", importTile},
      {"", "Transpose", importTranspose},
      {"", "Trilu", importTrilu},
      {"", "Unsqueeze", importUnsqueeze},
  };
  return ops;
}

} // namespace tbc::frontend

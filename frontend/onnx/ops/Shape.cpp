//===- Shape.cpp - Shapes and rearrangements -------------------------------===//

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace tbc::frontend {

Shape checkedShape(const std::vector<int64_t> &sizes) {
  for (int64_t size : sizes)
    if (size < 0)
      throw ImportError("asks for a dim of size " + std::to_string(size));
  if (sizes.size() > ScanLimits().rank)
    throw ImportError("asks for a tensor of rank " + std::to_string(sizes.size()));
  return sizes;
}

namespace {

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

/// Returns the batch of the example that `target` has as a number; 0 if it has none. `shape` has
/// the batch in dim 0. Example: 2 for a tensor [batch, 8, 4] and the target [2, 4, 8].
int64_t batchOfTarget(const Emitter &e, const Shape &shape, llvm::ArrayRef<int64_t> target) {
  __int128 perSample = shape[0] / e.marker, known = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    perSample *= shape[i];
  for (int64_t size : target) {
    if (size <= 0 || e.dependsOnBatch(size) || known > (__int128(1) << 62))
      return 0;
    known *= size;
  }
  if (perSample == 0 || known % perSample != 0)
    return 0;
  // One sample may also be taken apart: [1, 3, 8] to [3, 8] has no dim for others.
  int64_t batch = int64_t(known / perSample);
  return target[0] % batch == 0 && (batch > 1 || target[0] == 1) ? batch : 0;
}

/// Converts `target` from the batch of the export to the import's batch, where the file has it as a
/// number: it has fixed sizes, or the exporter has traced a number. Both must have the batch
/// outermost: dim 0 of `target` is the exported batch times a quotient. Other targets stay
/// unchanged. Example: exported batch 2, target [2 * 8, 64] becomes [batch * 8, 64].
std::vector<int64_t> rebatchTarget(NodeContext &node, const Shape &shape,
                                   std::vector<int64_t> target) {
  const Emitter &e = node.emitter;
  if (shape.empty() || target.empty() || shape[0] % e.marker != 0)
    return target;
  int64_t batch = e.exportedBatch;
  if (batch == 0) {
    batch = batchOfTarget(e, shape, target);
    if (batch == 0)
      return target;
    node.warnings.push_back("has the batch of the export as a number (" + std::to_string(batch) +
                            "), which is read as the batch of each step");
  }
  __int128 perSample = shape[0] / e.marker, known = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    perSample *= shape[i];
  std::vector<int64_t> exported = target;
  size_t open = target.size();
  for (size_t i = 0; i < target.size(); ++i) {
    if (e.dependsOnBatch(target[i]) || target[i] < -1 || target[i] == 0 ||
        known > perSample * batch)
      return target;
    if (target[i] == -1)
      open = i;
    else
      known *= target[i];
  }
  if (open < target.size()) {
    if (known == 0 || perSample * batch % known != 0)
      return target;
    exported[open] = int64_t(perSample * batch / known);
    known *= exported[open];
  }
  if (known != perSample * batch || exported[0] % batch != 0)
    return target;
  exported[0] = exported[0] / batch * e.marker;
  return exported;
}

/// Whether a reshape of `value` to `target` puts several samples in one row. Examples: [batch, 4]
/// to [-1, 2, 4], and to [batch / 2, 2, 4].
bool groupsSamples(const Emitter &e, const Value &value, const std::vector<int64_t> &target) {
  const int64_t elements = kernels::numElements(value.shape), perSample = elements / e.marker;
  __int128 known = 1;
  for (int64_t size : target)
    known = size > 0 && known < (__int128(1) << 62) ? known * size : known;
  if (!e.dependsOnBatch(elements) || known % perSample != 0)
    return false;
  const bool isOpen = llvm::is_contained(target, -1);
  const auto samples = int64_t(known / perSample), most = int64_t(64);
  return isOpen ? samples > 1 && samples <= most : samples < e.marker && samples >= e.marker - most;
}

/// Returns the end of the message about a reshape to another number of elements: what to do.
std::string reshapeRemedy(const NodeContext &node, const Value &value,
                          const std::vector<int64_t> &target) {
  const Emitter &e = node.emitter;
  if (groupsSamples(e, value, target))
    return ". It " + placesOfSamples();
  std::string remedy;
  if (llvm::none_of(target, [&](int64_t size) { return e.dependsOnBatch(size); }))
    remedy =
        ". If the model was exported with a fixed batch size, export it with a dynamic batch dim";
  if (node.torchOp().empty() &&
      llvm::any_of(target, [&](int64_t size) { return size < 0 || e.dependsOnBatch(size); }))
    remedy += ". PyTorch's older exporter writes another number where the model has -1 if "
              "repeat_interleave in it has a negative dim; give that a positive one, such as "
              "dim=2, or export with dynamo=True";
  return remedy;
}

void importReshape(NodeContext &node) {
  const Value &value = node.input(0);
  std::vector<int64_t> target = rebatchTarget(node, value.shape, node.ints(1));
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
                       ", which has another number of elements" +
                       reshapeRemedy(node, value, target));
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
    // PyTorch's squeeze keeps dims of other sizes. Its newer exporter writes them into the file,
    // where ONNX forbids them. Example: x.squeeze(1) of [b, 16, 32].
    if (llvm::StringRef(node.torchOp()).starts_with("aten.squeeze.dim"))
      llvm::erase_if(axes, [&](unsigned axis) { return value.shape[axis] != 1; });
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
  // A tracer writes `x.expand(*x.shape, n)` with the numbers of its example. Another number than
  // the batch fits a dim over the batch at that batch size only, so it stands for it.
  for (size_t back = 1; back <= std::min(value.rank(), target.rank()); ++back) {
    int64_t own = value.shape[value.rank() - back], &size = target.shape[target.rank() - back];
    if (own != node.emitter.marker || size <= 1 || node.emitter.dependsOnBatch(size))
      continue;
    node.warn("expands to the " + std::to_string(size) +
              " samples of the export; it expands to those of each batch");
    size = own;
  }
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

/// ImportError if `count` elements along `axis` of `value` are a part of the batch that depends on
/// its size. Examples: x[:x.size(0) // 2], x[::2], x[1:].
void checkSamplesTaken(const NodeContext &node, const Value &value, unsigned axis, int64_t count) {
  const Emitter &e = node.emitter;
  const int64_t size = value.shape[axis];
  constexpr int64_t mostGroup = 64; // a number of the file is far below the marker / 64
  if (e.dependsOnBatch(size) && !e.dependsOnBatch(count) && count > size / mostGroup &&
      !value.isKnown() && value.coreDim(axis) >= 0)
    throw ImportError(placesOfSamples());
}

void importSplit(NodeContext &node) {
  const Value &value = node.input(0);
  unsigned axis = checkAxis(node.attrInt("axis", 0), value.rank());
  int64_t size = value.shape[axis], parts = node.numOutputs();
  if (parts == 0)
    throw ImportError("has no outputs");
  std::vector<int64_t> sizes;
  if (node.hasInput(1)) {
    if (!node.input(1).isKnown())
      throw ImportError("splits into parts whose sizes are computed from data, such as the tokens "
                        "of each expert. Let every expert take all tokens, with weights of 0 for "
                        "those of others (docs/export.md, \"Samples\")");
    sizes = node.ints(1);
    // A tracer writes `both.split(n)` with the batch size of its example. As many equal parts as
    // the dim has batches fit it at that batch size only, so they stand for batches.
    const int64_t marker = node.emitter.marker;
    if (parts > 1 && size == parts * marker && int64_t(sizes.size()) == parts &&
        llvm::all_equal(sizes) && !node.emitter.dependsOnBatch(sizes[0])) {
      node.warn("splits into parts of the " + std::to_string(sizes[0]) +
                " samples of the export; it splits into batches");
      sizes.assign(parts, marker);
    }
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
    throw ImportError(
        "splits dim " + std::to_string(axis) + " of " +
        printShape(value.shape, node.emitter.marker) + " into " + std::to_string(sizes.size()) +
        " parts of " + std::to_string(total) + " in all" +
        (node.emitter.dependsOnBatch(size)
             ? "; take sizes from tensors, as x.split([a.size(0), b.size(0)]), and export the "
               "model without a loop over samples (docs/export.md, \"Samples\")"
             : ""));
  int64_t offset = 0;
  for (int64_t i = 0; i < parts; ++i) {
    checkSamplesTaken(node, value, axis, sizes[i]);
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
    // In a file of fixed sizes the end of the whole batch is a number. JAX slices all dims.
    const int64_t exported = node.emitter.exportedBatch;
    if (exported > 1 && node.emitter.dependsOnBatch(size) && starts[i] == 0 && step == 1 &&
        ends[i] == size / node.emitter.marker * exported)
      continue;
    // Like numpy: out-of-range bounds are clamped; backwards, position -1 is before the first.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
    int64_t start = clamp(starts[i]), end = clamp(ends[i]);
    if (step < 0 && ends[i] < -size)
      end = -1;
    __int128 span = __int128(end) - start;
    __int128 count = step > 0 ? (span + step - 1) / step : (span + step + 1) / step;
    checkSamplesTaken(node, value, axis, int64_t(count));
    value = slice(node.emitter, value, axis, start, step, count > 0 ? int64_t(count) : 0);
  }
  node.setOutput(0, value);
}

/// Repeats along each dim: inserts a new dim in front of it, then merges both.
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

} // namespace

llvm::ArrayRef<OpImporter> shapeOps() {
  static const OpImporter ops[] = {
      {"", "Concat", importConcat},
      {"", "Expand", importExpand, "", kView},
      {"", "Flatten", importFlatten, "", kView},
      {"", "Reshape", importReshape, "", kView},
      {"", "Shape", importShape},
      {"", "Size", importSize},
      {"", "Slice", importSlice, "", kView},
      {"", "Split", importSplit, "num_outputs", kView},
      {"", "Squeeze", importSqueeze, "", kView},
      {"", "Tile", importTile, "", kView},
      {"", "Transpose", importTranspose, "", kView},
      {"", "Unsqueeze", importUnsqueeze, "", kView},
  };
  return ops;
}

} // namespace tbc::frontend

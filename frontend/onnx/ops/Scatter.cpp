//===- Scatter.cpp - Write elements by index -------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

namespace {

/// How updates combine with the old element. Means: of the updates of an element; of these and the
/// old one.
enum class Mode { Replace, Add, Multiply, Maximum, Minimum, Mean, MeanWithOld };

/// torch's newer exporter writes a mean with reduction "none", as ONNX has no such reduction.
Mode modeOf(NodeContext &node) {
  std::string mode = node.attrText("reduction", "none");
  if (mode == "none") {
    const char *op = "aten.scatter_reduce";
    if (node.torchArgument(op, 4, "reduce").value_or("") != "mean")
      return Mode::Replace;
    bool isWithOld = node.torchArgument(op, 5, "include_self").value_or("True") == "True";
    return isWithOld ? Mode::MeanWithOld : Mode::Mean;
  }
  if (mode == "add")
    return Mode::Add;
  if (mode == "mul")
    return Mode::Multiply;
  if (mode == "max")
    return Mode::Maximum;
  if (mode == "min")
    return Mode::Minimum;
  throw ImportError("reduction '" + mode + "' is not supported");
}

void requireSameType(const Value &data, const Value &updates) {
  if (data.dtype != updates.dtype)
    throw ImportError("writes " + std::string(kernels::name(updates.dtype)) + " into " +
                      std::string(kernels::name(data.dtype)));
}

/// Whether the mode compares every position with every index.
bool comparesPairs(Mode mode) {
  return mode == Mode::Multiply || mode == Mode::Maximum || mode == Mode::Minimum;
}

void requireMeanOfFloats(const Value &data, Mode mode) {
  if ((mode == Mode::Mean || mode == Mode::MeanWithOld) && !kernels::isFloat(data.dtype))
    throw ImportError("is a mean of " + std::string(kernels::name(data.dtype)) +
                      ", which is not supported; cast to floats before");
}

bool isZero(const Value &value) { return value.isSplat() && value.splatReal() == 0; }

/// Whether no element gets two updates along `axis`: there is one index, or they are those of a
/// TopK.
bool areDistinct(const Value &indices, unsigned axis) {
  if (indices.shape[axis] == 1)
    return true;
  mlir::Operation *maker = indices.ir ? indices.ir.getDefiningOp() : nullptr;
  return maker && maker->getName().stripDialect() == "topk";
}

/// Whether `combine` needs the number of updates of each element. Without an update `sums` is 0, as
/// data of zeros is. Of several updates with one number, the sum is another number.
bool needsHits(Mode mode, const Value &data, const Value &updates, bool isDistinct) {
  if (mode == Mode::Replace)
    return !isZero(data) || (updates.isSplat() && !isDistinct);
  return mode == Mode::Mean || mode == Mode::MeanWithOld;
}

/// Returns data without an update, else the combination of both by `mode`. `sums`: of the updates
/// of each element; `hits`: their number, undefined if it is not needed.
Value combine(Emitter &emitter, const Value &data, Mode mode, const Value &updates,
              const Value &sums, const Value &hits) {
  Formula f{emitter};
  if (mode == Mode::Add)
    return isZero(data) ? sums : f.add(data, sums);
  if (!hits.isDefined())
    return sums;
  const Value count = cast(emitter, hits, data.dtype);
  if (mode == Mode::MeanWithOld)
    return f.div(f.add(data, sums), f.add(count, number(count, 1)));
  Value isHit = compare(emitter, "ne", hits, number(hits, 0));
  if (mode == Mode::Mean)
    return select(emitter, isHit, f.div(sums, f.maximum(count, number(count, 1))), data);
  return select(emitter, isHit, updates.isSplat() ? number(sums, updates.splatReal()) : sums, data);
}

/// Maximum, minimum or product of several updates per element: compares every position of the dim
/// with every index.
Value reduceInto(Emitter &emitter, Value data, Value indices, Value updates, unsigned axis,
                 Mode mode) {
  int64_t size = data.shape[axis];
  indices = select(emitter, compare(emitter, "lt", indices, number(indices, 0)),
                   elementwise(emitter, "add", {indices, number(indices, double(size))}), indices);
  indices = unsqueeze(cast(emitter, indices, DType::I64), {axis});
  updates = unsqueeze(updates, {axis});
  Shape places = indices.shape;
  places[axis] = size;
  Shape perSample = places;
  for (int64_t &dim : perSample)
    if (emitter.dependsOnBatch(dim))
      dim /= emitter.marker;
  if (saturatedElements(perSample) > kMaxKnownElements)
    throw ImportError("compares more than " + std::to_string(kMaxKnownElements) +
                      " pairs of a place and an index; only reductions 'none' and 'add' are "
                      "supported at this size");
  Value here = compare(emitter, "eq", indices, positions(places, axis));
  bool isMinimum = mode == Mode::Minimum;
  if (isMinimum) {
    data = elementwise(emitter, "neg", {data});
    updates = elementwise(emitter, "neg", {updates});
  }
  Value result;
  if (mode == Mode::Multiply) {
    Value factors = select(emitter, here, updates, number(updates, 1));
    result =
        elementwise(emitter, "mul", {data, reduceProduct(emitter, factors, {axis + 1}, false)});
  } else {
    Value candidates = select(emitter, here, updates, unsqueeze(data, {axis + 1}));
    result = elementwise(emitter, "maximum",
                         {data, reduce(emitter, "reduce_max", candidates, {axis + 1}, false)});
  }
  return isMinimum ? elementwise(emitter, "neg", {result}) : result;
}

/// ONNX ScatterElements: writes each update to data at `indices` along `axis`, at the update's own
/// position in the other dims.
Value scatterElements(Emitter &emitter, const Value &given, const Value &indices,
                      const Value &updates, unsigned axis, Mode mode) {
  requireSameType(given, updates);
  // `torch.zeros_like(x)` is a constant of the example's batch in files of the older exporter.
  Shape whole = indices.shape;
  if (whole.size() == given.rank())
    whole[axis] = given.shape[axis];
  const Value data = overSamples(given, whole, emitter.marker);
  if (indices.shape != updates.shape || indices.rank() != data.rank())
    throw ImportError("indices " + printShape(indices.shape, emitter.marker) + ", updates " +
                      printShape(updates.shape, emitter.marker) + " and data " +
                      printShape(data.shape, emitter.marker) + " do not fit together");
  Shape table = indices.shape;
  table[axis] = data.shape[axis];
  for (unsigned dim = 0; dim < data.rank(); ++dim)
    if (table[dim] > data.shape[dim])
      throw ImportError("writes outside of dim " + std::to_string(dim));
  requireMeanOfFloats(data, mode);
  if (comparesPairs(mode)) {
    if (table != data.shape)
      throw ImportError("its reduction is supported only where the indices have the data's other "
                        "dims");
    return reduceInto(emitter, data, indices, updates, axis, mode);
  }
  auto scatter = [&](const Value &value) {
    mlir::Value sums =
        emitter.createOne("scatter_elements_add", {emitter.full(value), emitter.full(indices)},
                          emitter.type(value.dtype, table), {emitter.integer("dim", axis)});
    Value result = Value::ofTensor(value.dtype, sums);
    for (unsigned dim = 0; dim < data.rank(); ++dim)
      result = padZeros(emitter, result, dim, 0, data.shape[dim] - table[dim]);
    return result;
  };
  Value sums = scatter(updates);
  Value hits = needsHits(mode, data, updates, areDistinct(indices, axis))
                   ? scatter(Value::ofSplat(DType::F32, updates.shape, 1))
                   : Value();
  return combine(emitter, data, mode, updates, sums, hits);
}

void importScatterElements(NodeContext &node) {
  const Value &data = node.input(0);
  requireIndices(node.input(1));
  node.setOutput(0, scatterElements(node.emitter, data, node.input(1), node.input(2),
                                    checkAxis(node.attrInt("axis", 0), data.rank()), modeOf(node)));
}

/// Returns `data` with `rows` at places `step` apart along `dim`, from `begin` on.
Value replaceSteps(Emitter &emitter, const Value &data, const Value &rows, unsigned dim,
                   int64_t begin, int64_t step) {
  int64_t size = data.shape[dim], count = rows.shape[dim];
  std::vector<int64_t> row, isReplaced;
  for (int64_t place = 0; place < size; ++place) {
    int64_t at = std::clamp<int64_t>((place - begin) / step, 0, count - 1);
    row.push_back(at);
    isReplaced.push_back(begin + at * step == place);
  }
  Value mask = Value::ofKnown(DType::Bool, data.shape, {dim}, Known::ofInts({size}, isReplaced));
  return select(emitter, mask, gather(emitter, rows, Value::ofInts(row), dim), data);
}

/// Replaces a block of `data`, dim by dim from `dim` on, by `updates`.
Value replaceBlock(Emitter &emitter, const Value &data, const Value &updates,
                   const IndexBlock &block, unsigned dim) {
  if (dim == block.begin.size())
    return updates;
  int64_t begin = block.begin[dim], size = block.size[dim], end = begin + size,
          step = block.step[dim];
  Value middle =
      replaceBlock(emitter, slice(emitter, data, dim, begin, step, size), updates, block, dim + 1);
  if (step > 1)
    return replaceSteps(emitter, data, middle, dim, begin, step);
  std::vector<Value> parts;
  if (begin > 0)
    parts.push_back(slice(emitter, data, dim, 0, 1, begin));
  parts.push_back(middle);
  if (end < data.shape[dim])
    parts.push_back(slice(emitter, data, dim, end, 1, data.shape[dim] - end));
  return parts.size() == 1 ? middle : concat(emitter, parts, dim);
}

/// Writes `updates` within each sample. `inner` [batch, list.., n] has coordinates of the n dims of
/// the data behind the batch, and the updates are of shape [batch, list.., rest..].
Value scatterInSamples(Emitter &emitter, const Value &data, const Value &inner,
                       const Value &updates, Mode mode) {
  const unsigned depth = inner.shape.back() + 1;
  auto elements = [](const Shape &shape, size_t from, size_t to) {
    return saturatedElements(Shape(shape.begin() + from, shape.begin() + to));
  };
  const int64_t samples = data.shape[0], rest = elements(data.shape, depth, data.rank()),
                list = elements(inner.shape, 1, inner.rank() - 1);
  Value places =
      flatIndices(emitter, inner, Shape(data.shape.begin() + 1, data.shape.begin() + depth));
  places = expand(emitter, reshape(emitter, places, {samples, list, 1}), {samples, list, rest});
  Value result = scatterElements(
      emitter, reshape(emitter, data, {samples, elements(data.shape, 1, depth), rest}), places,
      reshape(emitter, updates, {samples, list, rest}), 1, mode);
  return reshape(emitter, result, data.shape);
}

/// The last dim of `indices` lists coordinates of the leading dims of the data. They are merged
/// into one dim of rows.
void importScatterNd(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &data = node.input(0), &updates = node.input(2);
  Value indices = node.input(1);
  requireIndices(indices);
  requireSameType(data, updates);
  Mode mode = modeOf(node);
  if (indices.rank() == 0 || indices.shape.back() < 1 || indices.shape.back() > data.rank())
    throw ImportError("needs indices with 1 to " + std::to_string(data.rank()) + " coordinates");
  unsigned depth = indices.shape.back();
  Shape leading(data.shape.begin(), data.shape.begin() + depth),
      rest(data.shape.begin() + depth, data.shape.end());
  if (updates.rank() > 0 && emitter.dependsOnBatch(updates.shape[0]))
    indices = ofEachSample(emitter, indices, leading);
  Shape expected(indices.shape.begin(), indices.shape.end() - 1);
  Shape rows{saturatedElements(leading), saturatedElements(rest)};
  Shape chosen{saturatedElements(expected), rows[1]};
  expected.insert(expected.end(), rest.begin(), rest.end());
  if (updates.shape != expected)
    throw ImportError("writes updates of shape " + printShape(updates.shape, emitter.marker) +
                      " where indices and data ask for " + printShape(expected, emitter.marker));
  // An empty slice: windows that are shifted by 0 in Swin.
  if (llvm::is_contained(expected, 0))
    return node.setOutput(0, data);
  if (std::optional<Value> inner = indicesInSamples(emitter, data, indices))
    return node.setOutput(0, scatterInSamples(emitter, data, *inner, updates, mode));
  // A slice that is assigned to.
  if (mode == Mode::Replace)
    if (auto block = blockOfIndices(emitter, indices, leading)) {
      node.setOutput(0, replaceBlock(emitter, data, updates, *block, 0));
      return;
    }
  Value places = reshape(emitter, flatIndices(emitter, indices, leading), {chosen[0]});
  if (data.rank() == 1 && updates.rank() == 1) {
    node.setOutput(0, scatterElements(emitter, data, places, updates, 0, mode));
    return;
  }
  Value table = reshape(emitter, data, rows), values = reshape(emitter, updates, chosen);
  Value result;
  if (comparesPairs(mode)) {
    Value everywhere = expand(emitter, unsqueeze(places, {1}), chosen);
    result = reduceInto(emitter, table, everywhere, values, 0, mode);
  } else {
    auto scatter = [&](const Value &value, const Shape &shape) {
      return Value::ofTensor(
          value.dtype,
          emitter.createOne("scatter_add", {emitter.full(value), emitter.full(places)},
                            emitter.type(value.dtype, shape), {emitter.integer("dim", 0)}));
    };
    Value hits =
        needsHits(mode, data, updates, chosen[0] == 1)
            ? unsqueeze(scatter(Value::ofSplat(DType::F32, {chosen[0]}, 1), {rows[0]}), {1})
            : Value();
    result = combine(emitter, table, mode, updates, scatter(values, rows), hits);
  }
  node.setOutput(0, reshape(emitter, result, data.shape));
}

/// New cache entries: sample b's are written from position write_indices[b] on along dim `axis`.
void importTensorScatter(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &data = node.input(0), &updates = node.input(1);
  unsigned axis = checkAxis(node.attrInt("axis", -2), data.rank());
  std::string mode = node.attrText("mode", "linear");
  if (axis == 0 || updates.rank() != data.rank())
    throw ImportError("needs a dim behind that of the samples, and updates of the data's rank");
  if (mode != "linear" && mode != "circular")
    throw ImportError("mode '" + mode + "' is not supported");
  Value place = positions(updates.shape, axis);
  if (node.hasInput(2)) {
    Value first = cast(emitter, node.input(2), DType::I64);
    if (first.shape != Shape{data.shape[0]})
      throw ImportError("needs one place for each sample");
    std::vector<unsigned> behind;
    for (unsigned dim = 1; dim < data.rank(); ++dim)
      behind.push_back(dim);
    place = elementwise(emitter, "add", {place, unsqueeze(first, behind)});
  }
  if (mode == "circular") {
    Value size = number(place, double(data.shape[axis]));
    place = select(emitter, compare(emitter, "ge", place, size),
                   elementwise(emitter, "sub", {place, size}), place);
  }
  place = expand(emitter, place, updates.shape);
  node.setOutput(0, scatterElements(emitter, data, place, updates, axis, Mode::Replace));
}

/// Puts rows of `source`, in order, at the places of `data` where a mask is true (MaskedScatter.h).
/// A row is an element of the dims along which the mask repeats. Each sample takes its own rows, so
/// it may have fewer places than rows, and no more.
///
/// Example: x [batch, 16, 32], a mask [batch, 16] expanded to x, and features [batch, 5, 32]: place
/// (b, i) gets row count(mask[b, 0..i]) - 1 of the features of sample b.
void importMaskedScatter(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &data = node.input(0), &source = node.input(2);
  Value mask = node.input(1);
  requireSameType(data, source);
  if (mask.rank() > data.rank() ||
      !std::equal(mask.shape.begin(), mask.shape.end(), data.shape.begin()))
    throw ImportError("has a mask " + printShape(mask.shape, emitter.marker) + " for data " +
                      printShape(data.shape, emitter.marker));
  if (mask.dtype != DType::Bool)
    mask = compare(emitter, "ne", mask, number(mask, 0));
  unsigned depth = mask.rank();
  while (depth > 0 && mask.coreDim(depth - 1) < 0)
    --depth;
  bool ofSamples = depth > 0 && emitter.dependsOnBatch(data.shape[0]);
  if (depth <= unsigned(ofSamples))
    throw ImportError("selects whole samples by data. Write torch.where(mask, ..., x) with a value "
                      "for each sample");
  auto elements = [&](unsigned from, unsigned to) {
    return saturatedElements(Shape(data.shape.begin() + from, data.shape.begin() + to));
  };
  int64_t samples = ofSamples ? data.shape[0] : 1, places = elements(ofSamples, depth),
          width = elements(depth, data.rank()), given = saturatedElements(source.shape);
  if (given % samples != 0 || given / samples % width != 0)
    throw ImportError("puts elements of " + printShape(source.shape, emitter.marker) +
                      " at places of " + printShape(data.shape, emitter.marker) +
                      "; expected rows of " + std::to_string(width) + " for each sample");
  int64_t rows = given / samples / width;
  Value marked = mask;
  marked.shape.resize(depth);
  Value count = cast(emitter, reshape(emitter, marked, {samples, places}), DType::I64);
  mlir::Value sums =
      emitter.createOne("running_sum", {emitter.full(count)}, emitter.type(DType::I64, count.shape),
                        {emitter.integer("dim", 1), emitter.flag("exclusive", false),
                         emitter.flag("reverse", false)});
  Formula f{emitter};
  Value place = Value::ofTensor(DType::I64, sums);
  place = f.maximum(f.sub(f.minimum(place, number(place, double(rows))), number(place, 1)),
                    number(place, 0));
  place = expand(emitter, unsqueeze(place, {2}), {samples, places, width});
  Value table = reshape(emitter, source, {samples, rows, width});
  Value taken = reshape(emitter, gatherElements(emitter, table, place, 1), data.shape);
  std::vector<unsigned> behind;
  for (unsigned dim = mask.rank(); dim < data.rank(); ++dim)
    behind.push_back(dim);
  node.setOutput(0, select(emitter, unsqueeze(mask, behind), taken, data));
  if (ofSamples)
    node.warn("puts features at masked places, in each sample the first ones of its own " +
              std::to_string(rows) +
              ". PyTorch takes them in the order of the whole batch, which "
              "is the same where each sample has " +
              std::to_string(rows) + " places");
}

/// Puts `updates`, of the shape of `data`, where a mask over leading dims is true
/// (MaskedScatter.h).
void importMaskedAssign(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &data = node.input(0), &updates = node.input(2);
  Value mask = node.input(1);
  requireSameType(data, updates);
  if (updates.shape != data.shape || mask.rank() > data.rank() ||
      !std::equal(mask.shape.begin(), mask.shape.end(), data.shape.begin()))
    throw ImportError("assigns elements of " + printShape(updates.shape, emitter.marker) +
                      " at places of " + printShape(data.shape, emitter.marker) +
                      " that are chosen by data. Write torch.where(mask, updates, x) with both of "
                      "one shape");
  if (mask.dtype != DType::Bool)
    mask = compare(emitter, "ne", mask, number(mask, 0));
  std::vector<unsigned> behind;
  for (unsigned dim = mask.rank(); dim < data.rank(); ++dim)
    behind.push_back(dim);
  node.setOutput(0, select(emitter, unsqueeze(mask, behind), updates, data));
}

} // namespace

llvm::ArrayRef<OpImporter> scatterOps() {
  static const OpImporter ops[] = {
      {"", "Scatter", importScatterElements},      {"", "ScatterElements", importScatterElements},
      {"", "ScatterND", importScatterNd},          {"", "TensorScatter", importTensorScatter},
      {"tbc", "MaskedAssign", importMaskedAssign}, {"tbc", "MaskedScatter", importMaskedScatter},
  };
  return ops;
}

} // namespace tbc::frontend

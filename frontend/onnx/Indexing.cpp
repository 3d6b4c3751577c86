//===- Indexing.cpp - Gather and related ops -------------------------------===//

#include "frontend/onnx/Indexing.h"

#include "frontend/onnx/Digits.h"
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/Structure.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <optional>

namespace tbc::frontend {

namespace {

/// Returns known indices with negative ones counted from the end; ImportError if one is out of
/// range.
Value checkIndices(const Value &indices, int64_t size) {
  const Known &known = *indices.known;
  int64_t low = 0, high = 0;
  if (known.isAffine()) {
    low = high = known.offset();
    for (size_t i = 0; i < known.shape().size(); ++i) {
      int64_t span = known.coefficients()[i] * (known.shape()[i] - 1);
      (span < 0 ? low : high) += span;
    }
  } else if (known.numElements() > 0) {
    std::vector<int64_t> elements = known.ints();
    auto [least, greatest] = std::minmax_element(elements.begin(), elements.end());
    low = *least, high = *greatest;
  }
  if (known.numElements() > 0 && (low < -size || high >= size)) {
    // Indices beyond the end of a table are mostly positions of a sequence that is too long.
    bool counts = known.isAffine() && known.numElements() > 1 && low >= 0 && low < size;
    throw ImportError(
        "index " + std::to_string(low < -size ? low : high) +
        " is out of range for a dim of size " + std::to_string(size) +
        (counts ? "; if it holds positions, --seq can be at most " + std::to_string(size - low)
                : std::string()));
  }
  if (low >= 0)
    return indices;
  if (known.isAffine() && high < 0)
    return Value::ofKnown(
        indices.dtype, indices.shape, indices.dims,
        Known::affine(known.shape(), known.offset() + size, known.coefficients(), false));
  std::vector<int64_t> elements = known.ints();
  for (int64_t &element : elements)
    element += element < 0 ? size : 0;
  return Value::ofKnown(indices.dtype, indices.shape, indices.dims,
                        Known::ofInts(known.shape(), std::move(elements)));
}

/// A dim whose known indices are start, start + 1, start + 2, ...
struct Range {
  unsigned dim;
  int64_t start, size;
};

std::optional<Range> asRange(const Value &indices) {
  const Known &known = *indices.known;
  if (known.isAffine() && known.shape().size() == 1 && known.coefficients()[0] == 1)
    return Range{indices.dims[0], known.offset(), known.shape()[0]};
  if (indices.dims.size() == 1 && known.numElements() == 2 &&
      known.intAt({1}) == known.intAt({0}) + 1)
    return Range{indices.dims[0], known.intAt({0}), 2};
  return std::nullopt;
}

/// The shape of a gather.
Shape gatheredShape(const Value &data, const Value &indices, unsigned axis) {
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  return shape;
}

/// The position in the result of dim `dim` of the data, for a given position of dim `axis`.
unsigned movedDim(unsigned dim, unsigned axis, unsigned indexRank, unsigned axisTo) {
  if (dim == axis)
    return axisTo;
  return dim < axis ? dim : dim + indexRank - 1;
}

/// Returns `data` as the result of shape `shape`; its dim `axis`, already cut to the range, becomes
/// result dim `axisTo`. The order of dims is kept, so no element moves.
Value placed(const Value &data, unsigned axis, unsigned indexRank, unsigned axisTo,
             const Shape &shape) {
  Value result = data;
  result.shape = shape;
  result.partsDim = movedDim(data.partsDim, axis, indexRank, axisTo);
  for (unsigned &dim : result.dims)
    dim = movedDim(dim, axis, indexRank, axisTo);
  return result;
}

Value gatherKnown(const Value &data, const Value &indices, unsigned axis, const Shape &shape,
                  const std::vector<unsigned> &dims) {
  const Known &table = *data.known;
  Shape coreShape;
  for (unsigned dim : dims)
    coreShape.push_back(shape[dim]);
  std::vector<int64_t> ints;
  std::vector<double> reals;
  unsigned core = data.coreDim(axis);
  forEachIndex(coreShape, [&](const Shape &index) {
    auto at = [&](unsigned dim) { return index[llvm::find(dims, dim) - dims.begin()]; };
    Shape indexIndex, tableIndex;
    for (unsigned dim : indices.dims)
      indexIndex.push_back(at(dim + axis));
    for (unsigned i = 0; i < data.dims.size(); ++i)
      tableIndex.push_back(i == core ? indices.known->intAt(indexIndex)
                                     : at(movedDim(data.dims[i], axis, indices.rank(), 0)));
    if (table.isFloat())
      reals.push_back(table.realAt(tableIndex));
    else
      ints.push_back(table.intAt(tableIndex));
  });
  return Value::ofKnown(data.dtype, shape, dims,
                        table.isFloat() ? Known::ofReals(coreShape, std::move(reals))
                                        : Known::ofInts(coreShape, std::move(ints)));
}

/// An affine table at affine indices is affine.
Value composeAffine(const Value &data, const Value &indices, unsigned axis, const Shape &shape,
                    const std::vector<unsigned> &dims) {
  const Known &table = *data.known, &index = *indices.known;
  unsigned core = data.coreDim(axis);
  int64_t step = table.coefficients()[core];
  std::vector<int64_t> steps(dims.size(), 0);
  Shape coreShape;
  for (unsigned dim : dims)
    coreShape.push_back(shape[dim]);
  auto at = [&](unsigned dim) { return llvm::find(dims, dim) - dims.begin(); };
  for (unsigned i = 0; i < data.dims.size(); ++i)
    if (i != core)
      steps[at(movedDim(data.dims[i], axis, indices.rank(), 0))] = table.coefficients()[i];
  int64_t offset = table.offset();
  if (index.isAffine()) {
    for (unsigned i = 0; i < indices.dims.size(); ++i)
      steps[at(indices.dims[i] + axis)] = step * index.coefficients()[i];
    offset += step * index.offset();
  } else {
    offset += step * index.intAt({});
  }
  return Value::ofKnown(data.dtype, shape, dims,
                        Known::affine(coreShape, offset, steps, table.isFloat()));
}

/// Returns the non-repeating dims of a gather's result.
std::vector<unsigned> gatheredDims(const Value &data, const Value &indices, unsigned axis) {
  std::vector<unsigned> dims;
  for (unsigned dim : data.dims)
    if (dim != axis)
      dims.push_back(movedDim(dim, axis, indices.rank(), 0));
  for (unsigned dim : indices.dims)
    dims.push_back(dim + axis);
  llvm::sort(dims);
  return dims;
}

Value gatherRuntime(Emitter &emitter, const Value &data, const Value &indices, unsigned axis,
                    const Shape &shape) {
  std::vector<unsigned> dims = gatheredDims(data, indices, axis);
  Shape coreShape;
  for (unsigned dim : dims)
    coreShape.push_back(shape[dim]);
  mlir::Value core = emitter.createOne("gather", {emitter.core(data), emitter.core(indices)},
                                       emitter.type(data.dtype, coreShape),
                                       {emitter.integer("dim", data.coreDim(axis))});
  return Value::ofCore(data.dtype, shape, dims, core);
}

/// Whether affine indices over samples and other dims choose from a flattened dim of samples.
bool readsByStrides(const Emitter &emitter, const Value &data, const Known &indices,
                    unsigned axis) {
  return indices.isAffine() && indices.shape().size() > 2 &&
         emitter.dependsOnBatch(data.shape[axis]) && data.shape[axis] > emitter.marker &&
         llvm::any_of(indices.shape(), [&](int64_t size) { return emitter.dependsOnBatch(size); });
}

} // namespace

Value gather(Emitter &emitter, const Value &data, const Value &givenIndices, unsigned axis) {
  Shape shape = gatheredShape(data, givenIndices, axis);
  bool indicesKnown = givenIndices.isKnown();
  Value indices = indicesKnown ? checkIndices(givenIndices, data.shape[axis]) : givenIndices;
  if (data.coreDim(axis) < 0) // all rows are equal
    return placed(data, axis, indices.rank(), 0, shape);
  if (!indicesKnown)
    return gatherRuntime(emitter, data, indices, axis, shape);

  std::vector<unsigned> dims = gatheredDims(data, indices, axis);
  int64_t elements = 1;
  for (unsigned dim : dims)
    if (__builtin_mul_overflow(elements, shape[dim], &elements))
      throw ImportError("a tensor of more than 2^63 elements");
  if (data.isKnown() && data.known->isAffine() && (indices.known->isAffine() || indices.isSplat()))
    return composeAffine(data, indices, axis, shape, dims);
  if (data.isKnown() && elements <= kMaxKnownElements)
    return gatherKnown(data, indices, axis, shape, dims);
  if (indices.isSplat()) {
    Value row = slice(emitter, data, axis, indices.splatInt(), 1, 1);
    row = emitter.withoutUnitDims(row);
    return placed(row, axis, indices.rank(), 0, shape);
  }
  if (std::optional<Range> range = asRange(indices)) {
    Value rows = slice(emitter, data, axis, range->start, 1, range->size);
    return placed(rows, axis, indices.rank(), axis + range->dim, shape);
  }
  if (auto digits = digitsOf(*indices.known, data.shape[axis]))
    return gatherDigits(emitter, data, indices, axis, *digits, shape);
  if (readsByStrides(emitter, data, *indices.known, axis))
    throw ImportError("reads a flattened tensor by strides over the samples that are not those of "
                      "its rows, as as_strided of a tensor in another order of memory does: they "
                      "hold the batch size of the export. Write x.contiguous().as_strided(...), "
                      "x.unfold(...), or slices");
  return gatherRuntime(emitter, data, indices, axis, shape);
}

//===- GatherND ------------------------------------------------------------===//

/// Returns the coordinates of data dim `k`: `indices` at position k of its last dim, without that
/// dim.
static Value coordinate(Emitter &emitter, const Value &indices, int64_t k) {
  unsigned last = indices.rank() - 1;
  Value part = indices;
  if (indices.parts && indices.partsDim == last) {
    int64_t at = k;
    const Value *candidate = indices.parts->data();
    while (at >= candidate->shape[last])
      at -= (candidate++)->shape[last];
    part = *candidate;
    k = at;
  }
  return squeeze(emitter, slice(emitter, part, last, k, 1, 1), {last});
}

std::optional<IndexBlock> blockOfIndices(Emitter &emitter, const Value &indices,
                                         const Shape &sizes) {
  unsigned depth = indices.shape.back();
  if (indices.rank() != depth + 1)
    return std::nullopt;
  IndexBlock block;
  for (unsigned k = 0; k < depth; ++k) {
    Value part = coordinate(emitter, indices, k);
    if (!part.isKnown())
      return std::nullopt;
    part = checkIndices(part, sizes[k]);
    int64_t size = indices.shape[k];
    int64_t begin = 0, step = 1;
    if (part.isSplat() && size == 1) {
      begin = part.splatInt();
    } else {
      const Known &known = *part.known;
      if (part.isSplat() || part.dims != std::vector<unsigned>{k})
        return std::nullopt;
      begin = known.intAt({0});
      step = known.intAt({1}) - begin;
      bool isEven = known.isAffine() || known.numElements() == 2;
      if (!isEven || step < 1)
        return std::nullopt;
    }
    block.begin.push_back(begin);
    block.size.push_back(size);
    block.step.push_back(step);
  }
  return block;
}

Value ofEachSample(Emitter &emitter, const Value &indices, const Shape &sizes) {
  if (!(indices.isKnown() || indices.parts) || indices.rank() < 2 || sizes[0] != emitter.marker ||
      emitter.dependsOnBatch(indices.shape[0]))
    return indices;
  unsigned last = indices.rank() - 1;
  Shape shape = indices.shape;
  shape[0] = emitter.marker;
  shape[last] = 1;
  std::vector<Value> coordinates;
  for (unsigned k = 0; k < sizes.size(); ++k) {
    Value part = coordinate(emitter, indices, k);
    if (!part.isKnown())
      return indices;
    if (k == 0) {
      std::optional<Range> range;
      if (!part.isSplat())
        range = asRange(part);
      bool numbers = range ? range->dim == 0 && range->start == 0
                           : part.isSplat() && part.splatInt() == 0 && indices.shape[0] == 1;
      if (!numbers)
        return indices;
      coordinates.push_back(Value::ofKnown(indices.dtype, shape, {0},
                                           Known::affine({shape[0]}, 0, {1}, /*isFloat=*/false)));
      continue;
    }
    if (part.coreDim(0) >= 0)
      return indices;
    part = unsqueeze(part, {last});
    part.shape[0] = emitter.marker;
    coordinates.push_back(part);
  }
  return concat(emitter, coordinates, last);
}

/// Returns `value` with dim `from` at place `to`.
static Value moveDim(Emitter &emitter, const Value &value, unsigned from, unsigned to) {
  std::vector<unsigned> order;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    if (dim != from)
      order.push_back(dim);
  order.insert(order.begin() + to, from);
  return transpose(emitter, value, order);
}

/// If coordinate `k` is the number of the sample along a dim of the indices, returns that dim.
static std::optional<unsigned> samplesOfCoordinate(Emitter &emitter, const Value &data,
                                                   const Value &indices, unsigned k) {
  if (!emitter.dependsOnBatch(data.shape[k]))
    return std::nullopt;
  Value part = coordinate(emitter, indices, k);
  if (!part.isKnown() || part.isSplat())
    return std::nullopt;
  std::optional<Range> range = asRange(checkIndices(part, data.shape[k]));
  if (!range || range->start != 0 || range->size != data.shape[k])
    return std::nullopt;
  return range->dim;
}

Value flatIndices(Emitter &emitter, const Value &indices, const Shape &sizes) {
  Value flat;
  int64_t stride = 1;
  for (int64_t k = int64_t(sizes.size()) - 1; k >= 0; --k) {
    Value place = cast(emitter, coordinate(emitter, indices, k), DType::I64);
    // The reader of a list along one dim normalizes it itself.
    if (sizes.size() > 1 || stride > 1)
      place = select(emitter, compare(emitter, "lt", place, number(place, 0)),
                     elementwise(emitter, "add", {place, number(place, double(sizes[k]))}), place);
    Value term = elementwise(emitter, "mul", {place, number(place, double(stride))});
    flat = flat.isDefined() ? elementwise(emitter, "add", {flat, term}) : term;
    if (__builtin_mul_overflow(stride, sizes[k], &stride))
      throw ImportError("a tensor of more than 2^63 elements");
  }
  return flat;
}

/// General coordinates: their dims are merged into one dim with one index.
static Value gatherFlat(Emitter &emitter, const Value &data, const Value &indices,
                        int64_t batchDims) {
  unsigned depth = indices.shape.back();
  auto at = [&](const Shape &shape, unsigned from, unsigned to) {
    return Shape(shape.begin() + from, shape.begin() + to);
  };
  Shape batch = at(data.shape, 0, batchDims), chosen = at(data.shape, batchDims, batchDims + depth),
        rest = at(data.shape, batchDims + depth, data.rank()),
        list = at(indices.shape, batchDims, indices.rank() - 1);
  Value flat = flatIndices(emitter, indices, chosen);
  Shape shape = batch, result = batch;
  shape.push_back(saturatedElements(chosen));
  result.insert(result.end(), list.begin(), list.end());
  result.insert(result.end(), rest.begin(), rest.end());
  if (batchDims == 0) {
    shape.insert(shape.end(), rest.begin(), rest.end());
    return gather(emitter, reshape(emitter, data, shape), flat, 0);
  }
  // Each sample has indices of its own.
  Shape places = batch;
  places.push_back(saturatedElements(list));
  Shape rows = places;
  if (!rest.empty()) {
    shape.push_back(saturatedElements(rest));
    places.push_back(1);
    rows.push_back(shape.back());
  }
  Value everywhere = expand(emitter, reshape(emitter, flat, places), rows);
  mlir::Value gathered = emitter.createOne(
      "gather_elements", {emitter.full(reshape(emitter, data, shape)), emitter.full(everywhere)},
      emitter.type(data.dtype, rows), {emitter.integer("dim", batchDims)});
  return reshape(emitter, Value::ofTensor(data.dtype, gathered), result);
}

std::optional<Value> indicesInSamples(Emitter &emitter, const Value &data, const Value &indices) {
  const unsigned last = indices.rank() - 1;
  const int64_t depth = indices.shape[last];
  if (depth < 2 || !indices.parts || samplesOfCoordinate(emitter, data, indices, 0) != 0u)
    return std::nullopt;
  std::vector<Value> others;
  for (int64_t k = 1; k < depth; ++k)
    others.push_back(unsqueeze(coordinate(emitter, indices, k), {last}));
  if (llvm::all_of(others, [](const Value &value) { return value.isKnown(); }))
    return std::nullopt;
  return others.size() == 1 ? others[0] : concat(emitter, others, last);
}

/// Gathers within each sample where one coordinate is the sample's own number and others are data.
/// Example: x[i, arange(batch)] of x [positions, batch, 32] takes x[i[b], b] for each sample b.
static std::optional<Value> gatherInSamples(Emitter &emitter, const Value &data,
                                            const Value &indices) {
  unsigned depth = indices.shape.back();
  for (unsigned k = 0; k < depth && depth > 1 && indices.parts; ++k) {
    std::optional<unsigned> dim = samplesOfCoordinate(emitter, data, indices, k);
    if (!dim)
      continue;
    std::vector<Value> others;
    for (unsigned other = 0; other < depth; ++other)
      if (other != k)
        others.push_back(unsqueeze(moveDim(emitter, coordinate(emitter, indices, other), *dim, 0),
                                   {indices.rank() - 1}));
    if (llvm::all_of(others, [](const Value &value) { return value.isKnown(); }))
      return std::nullopt;
    Value inner = others.size() == 1 ? others[0] : concat(emitter, others, indices.rank() - 1);
    return moveDim(emitter, gatherFlat(emitter, moveDim(emitter, data, k, 0), inner, 1), 0, *dim);
  }
  return std::nullopt;
}

Value gatherNd(Emitter &emitter, const Value &data, const Value &indices, int64_t batchDims) {
  if (indices.rank() == 0)
    throw ImportError("GatherND needs indices of rank 1 or more");
  int64_t depth = indices.shape.back();
  if (batchDims < 0 || batchDims >= int64_t(indices.rank()) || depth < 1 ||
      batchDims > int64_t(data.rank()) - depth)
    throw ImportError("GatherND with " + std::to_string(depth) +
                      " coordinates for a tensor of rank " + std::to_string(data.rank()) + " and " +
                      std::to_string(batchDims) + " batch dims");
  if (!std::equal(data.shape.begin(), data.shape.begin() + batchDims, indices.shape.begin()))
    throw ImportError(
        "reads " + printShape(data.shape, emitter.marker) + " by indices " +
        printShape(indices.shape, emitter.marker) + ", which differ in the first " +
        (batchDims == 1 ? "dim" : std::to_string(batchDims) + " dims") +
        "; indices for a batch of one size are imported if the export has a dynamic batch");
  if (batchDims != 0)
    return gatherFlat(emitter, data, indices, batchDims);
  if (std::optional<Value> rows = gatherInSamples(emitter, data, indices))
    return *rows;
  unsigned indexRank = indices.rank() - 1;
  Shape indexShape(indices.shape.begin(), indices.shape.end() - 1);
  Shape shape = indexShape;
  shape.insert(shape.end(), data.shape.begin() + depth, data.shape.end());

  // One coordinate at a time. A range maps its data dim to a dim of the result, so the data is
  // first cut along all of them; only one coordinate may be a general list.
  Value cut = data;
  std::vector<std::optional<unsigned>> target(depth);
  int64_t general = -1;
  for (int64_t k = 0; k < depth; ++k) {
    Value part = coordinate(emitter, indices, k);
    if (!part.isKnown() && cut.coreDim(k) >= 0 && depth > 1)
      return gatherFlat(emitter, data, indices, 0);
    if (part.isKnown())
      part = checkIndices(part, data.shape[k]);
    if (cut.coreDim(k) < 0) {
      cut.shape[k] = 1;
      continue;
    }
    const bool isSplat = part.isKnown() && part.isSplat();
    const std::optional<Range> range = part.isKnown() && !isSplat ? asRange(part) : std::nullopt;
    if (isSplat) {
      cut = slice(emitter, cut, k, part.splatInt(), 1, 1);
      if (!cut.isKnown())
        cut = emitter.withoutUnitDims(cut);
    } else if (range && !llvm::is_contained(target, std::optional<unsigned>(range->dim))) {
      cut = slice(emitter, cut, k, range->start, 1, range->size);
      target[k] = range->dim;
    } else if (general < 0) {
      general = k;
    } else {
      return gatherFlat(emitter, data, indices, 0);
    }
  }
  // The result's dims are those of the indices, then the remaining ones of the data.
  if (general >= 0) {
    Value part = coordinate(emitter, indices, general);
    bool alone = llvm::none_of(target, [](const auto &dim) { return dim.has_value(); });
    if (!alone)
      return gatherFlat(emitter, data, indices, 0);
    std::vector<unsigned> rest;
    for (int64_t k = 0; k < depth; ++k)
      if (k != general)
        rest.push_back(k);
    for (unsigned k : rest)
      if (cut.shape[k] != 1)
        cut.shape[k] = 1;
    return gather(emitter, squeeze(emitter, cut, rest), part, 0);
  }
  // Bring the cut dims into the order of their targets.
  std::vector<unsigned> order;
  for (unsigned k = 0; k < depth; ++k)
    order.push_back(k);
  llvm::sort(order, [&](unsigned a, unsigned b) {
    return std::pair(target[a].value_or(indexRank), a) <
           std::pair(target[b].value_or(indexRank), b);
  });
  std::vector<unsigned> permutation = order;
  for (unsigned dim = depth; dim < data.rank(); ++dim)
    permutation.push_back(dim);
  Value moved = transpose(emitter, cut, permutation);
  Value result = moved;
  result.shape = shape;
  for (unsigned &dim : result.dims)
    dim = dim < depth ? *target[order[dim]] : dim - depth + indexRank;
  return result;
}

} // namespace tbc::frontend

//===- Structure.cpp - Ops that rearrange a value --------------------------===//

#include "frontend/onnx/Structure.h"

#include "frontend/onnx/Indexing.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace tbc::frontend {

unsigned checkAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    throw ImportError("axis " + std::to_string(axis) + " is not a dim of a tensor of rank " +
                      std::to_string(rank));
  return unsigned(axis < 0 ? axis + rank : axis);
}

std::vector<unsigned> checkAxes(const std::vector<int64_t> &axes, int64_t rank) {
  std::vector<unsigned> result;
  for (int64_t axis : axes)
    result.push_back(checkAxis(axis, rank));
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    throw ImportError("an axis is given twice");
  return result;
}

Value expand(Emitter &emitter, const Value &value, const Shape &shape) {
  Value result = value.isKnown() ? value : emitter.withoutUnitDims(value);
  unsigned shift = shape.size() - value.shape.size();
  for (unsigned &dim : result.dims)
    dim += shift;
  result.partsDim += shift;
  result.shape = shape;
  return result;
}

Value unsqueeze(const Value &value, const std::vector<unsigned> &axes) {
  Value result = value;
  for (unsigned axis : axes) { // ascending
    result.shape.insert(result.shape.begin() + axis, 1);
    for (unsigned &dim : result.dims)
      dim += dim >= axis;
    result.partsDim += result.partsDim >= axis;
  }
  return result;
}

Value squeeze(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes) {
  for (unsigned axis : axes)
    if (value.shape[axis] != 1)
      throw ImportError("squeezes dim " + std::to_string(axis) + " of " +
                        printShape(value.shape, emitter.marker) + ", which is not of size 1");
  Value result = value;
  if (llvm::any_of(axes, [&](unsigned axis) { return value.coreDim(axis) >= 0; })) {
    if (value.parts)
      return reshape(emitter, value, [&] {
        Shape shape;
        for (unsigned dim = 0; dim < value.rank(); ++dim)
          if (!llvm::is_contained(axes, dim))
            shape.push_back(value.shape[dim]);
        return shape;
      }());
    result = emitter.withoutUnitDims(value);
  }
  for (unsigned axis : llvm::reverse(axes)) {
    result.shape.erase(result.shape.begin() + axis);
    for (unsigned &dim : result.dims)
      dim -= dim > axis;
    result.partsDim -= result.partsDim > axis;
  }
  return result;
}

Value transpose(Emitter &emitter, const Value &value, const std::vector<unsigned> &permutation) {
  Shape shape;
  // Pairs of (new dim, core dim).
  std::vector<std::pair<unsigned, unsigned>> order;
  for (unsigned dim = 0; dim < permutation.size(); ++dim) {
    shape.push_back(value.shape[permutation[dim]]);
    if (int core = value.coreDim(permutation[dim]); core >= 0)
      order.push_back({dim, core});
  }
  std::vector<unsigned> dims;
  llvm::SmallVector<int64_t> corePermutation;
  for (auto [dim, core] : order) {
    dims.push_back(dim);
    corePermutation.push_back(core);
  }
  Value result = value;
  result.shape = shape;
  result.dims = dims;
  if (llvm::is_sorted(corePermutation)) {
    if (value.parts)
      result.partsDim = dims[value.coreDim(value.partsDim)];
    return result;
  }
  if (value.isKnown()) {
    Shape newCore = result.coreShape();
    const Known &known = *value.known;
    if (known.isAffine()) {
      std::vector<int64_t> steps;
      for (int64_t core : corePermutation)
        steps.push_back(known.coefficients()[core]);
      return Value::ofKnown(value.dtype, shape, dims,
                            Known::affine(newCore, known.offset(), steps, known.isFloat()));
    }
    std::vector<int64_t> ints;
    std::vector<double> reals;
    Shape oldIndex(newCore.size());
    forEachIndex(newCore, [&](const Shape &index) {
      for (size_t i = 0; i < index.size(); ++i)
        oldIndex[corePermutation[i]] = index[i];
      if (known.isFloat())
        reals.push_back(known.realAt(oldIndex));
      else
        ints.push_back(known.intAt(oldIndex));
    });
    return Value::ofKnown(value.dtype, shape, dims,
                          known.isFloat() ? Known::ofReals(newCore, std::move(reals))
                                          : Known::ofInts(newCore, std::move(ints)));
  }
  mlir::Value core = emitter.createOne("transpose", {emitter.core(value)},
                                       emitter.type(value.dtype, result.coreShape()),
                                       {emitter.integers("permutation", corePermutation)});
  return Value::ofCore(value.dtype, shape, dims, core);
}

//===- reshape -------------------------------------------------------------===//

namespace {

/// Input and output dims of a reshape with the same elements.
struct Span {
  std::vector<unsigned> in, out;
  /// The factors of the span, and their number per dim; `sizes` is empty without a common split.
  std::vector<int64_t> sizes, inCounts, outCounts;
};

/// Splits a span at the products of its leading dims. Example: [6, 4] to [6, 2, 2] is 6, 2, 2; [6,
/// 4] to [8, 3] has no common split.
void splitSpan(Span &span, const Shape &inShape, const Shape &outShape) {
  std::vector<int64_t> cuts;
  auto addCuts = [&](const std::vector<unsigned> &dims, const Shape &shape) {
    int64_t product = 1;
    for (unsigned dim : dims)
      cuts.push_back(product *= shape[dim]);
  };
  addCuts(span.in, inShape);
  addCuts(span.out, outShape);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  int64_t last = 1;
  for (int64_t cut : cuts) {
    if (cut % last != 0) {
      span.sizes.clear();
      return;
    }
    span.sizes.push_back(cut / last);
    last = cut;
  }
  auto countFactors = [&](const std::vector<unsigned> &dims, const Shape &shape,
                          std::vector<int64_t> &counts) {
    size_t next = 0;
    for (unsigned dim : dims) {
      int64_t product = 1, count = 0;
      for (; product < shape[dim]; ++count)
        product *= span.sizes[next++];
      counts.push_back(count);
    }
  };
  countFactors(span.in, inShape, span.inCounts);
  countFactors(span.out, outShape, span.outCounts);
}

/// The finest spans of a reshape, without dims of size 1.
std::vector<Span> findSpans(const Shape &inShape, const Shape &outShape) {
  std::vector<Span> spans;
  size_t i = 0, j = 0;
  auto skipUnits = [](const Shape &shape, size_t &at) {
    while (at < shape.size() && shape[at] == 1)
      ++at;
  };
  for (skipUnits(inShape, i), skipUnits(outShape, j); i < inShape.size();
       skipUnits(inShape, i), skipUnits(outShape, j)) {
    Span span;
    int64_t in = inShape[i], out = outShape[j];
    span.in.push_back(i++);
    span.out.push_back(j++);
    while (in != out) {
      bool takeIn = in < out;
      size_t &at = takeIn ? i : j;
      skipUnits(takeIn ? inShape : outShape, at);
      (takeIn ? in : out) *= (takeIn ? inShape : outShape)[at];
      (takeIn ? span.in : span.out).push_back(at++);
    }
    splitSpan(span, inShape, outShape);
    spans.push_back(span);
  }
  return spans;
}

/// Returns `value` with each unsplittable span in `merge` as one dim.
Value mergeSpans(Emitter &emitter, const Value &value, const std::vector<Span> &spans) {
  Shape merged;
  for (const Span &span : spans) {
    int64_t product = 1;
    for (unsigned dim : span.in) {
      if (span.sizes.empty())
        product *= value.shape[dim];
      else
        merged.push_back(value.shape[dim]);
    }
    if (span.sizes.empty())
      merged.push_back(product);
  }
  return reshape(emitter, value, merged);
}

/// Reshapes listed elements. A span along which the value repeats is not listed. Example: a table
/// [batch, 4, 6] that repeats along the batch becomes [batch, 24] with 24 elements.
Value reshapeKnown(const Value &value, const std::vector<Span> &spans, const Shape &shape) {
  std::vector<unsigned> inDims, outDims;
  for (const Span &span : spans)
    if (llvm::any_of(span.in, [&](unsigned dim) { return value.coreDim(dim) >= 0; })) {
      inDims.insert(inDims.end(), span.in.begin(), span.in.end());
      outDims.insert(outDims.end(), span.out.begin(), span.out.end());
    }
  for (unsigned dim : value.dims) // of size 1, in no span
    if (!llvm::is_contained(inDims, dim))
      inDims.push_back(dim);
  llvm::sort(inDims);
  Value part = value;
  part.shape.clear();
  part.dims.clear();
  for (auto [position, dim] : llvm::enumerate(inDims)) {
    part.shape.push_back(value.shape[dim]);
    if (value.coreDim(dim) >= 0)
      part.dims.push_back(unsigned(position));
  }
  Shape result;
  for (unsigned dim : outDims)
    result.push_back(shape[dim]);
  Known full = fullKnown(part);
  return Value::ofKnown(value.dtype, shape, outDims,
                        full.isFloat() ? Known::ofReals(result, full.reals())
                                       : Known::ofInts(result, full.ints()));
}

/// Whether listing the elements of a reshaped value would repeat a large table for each sample.
bool listsTablePerSample(const Emitter &emitter, const Value &value,
                         const std::vector<Span> &spans) {
  int64_t elements = 1;
  bool repeats = false;
  for (const Span &span : spans) {
    auto isCore = [&](unsigned dim) { return value.coreDim(dim) >= 0; };
    if (llvm::none_of(span.in, isCore))
      continue;
    for (unsigned dim : span.in) {
      repeats |= !isCore(dim) && emitter.dependsOnBatch(value.shape[dim]);
      if (__builtin_mul_overflow(elements, value.shape[dim], &elements))
        return repeats;
    }
  }
  return repeats && elements > kMaxKnownElements;
}

/// Whether no element moves: every span of the core is one dim of unchanged size.
bool onlyRenames(const Value &value, const std::vector<Span> &spans) {
  for (const Span &span : spans) {
    bool isBroadcast = llvm::all_of(span.in, [&](unsigned dim) { return value.coreDim(dim) < 0; });
    if (!isBroadcast && (span.in.size() != 1 || span.out.size() != 1))
      return false;
  }
  return llvm::all_of(value.dims, [&](unsigned dim) { return value.shape[dim] != 1; });
}

Value renameDims(const Value &value, const std::vector<Span> &spans, const Shape &shape) {
  Value result = value;
  auto rename = [&](unsigned dim) {
    for (const Span &span : spans)
      if (span.in[0] == dim)
        return span.out[0];
    return dim;
  };
  for (unsigned &dim : result.dims)
    dim = rename(dim);
  if (value.parts)
    result.partsDim = rename(value.partsDim);
  result.shape = shape;
  return result;
}

} // namespace

/// Returns the product of the sizes; ImportError if it is too large for a tensor.
static int64_t checkedElements(const Shape &shape) {
  __int128 product = 1;
  for (int64_t size : shape) {
    product *= size;
    if (product > (int64_t(1) << 56))
      throw ImportError("a tensor of more than 2^56 elements");
  }
  return int64_t(product);
}

Value reshape(Emitter &emitter, const Value &value, const Shape &shape) {
  if (value.shape == shape)
    return value;
  if (checkedElements(value.shape) != checkedElements(shape))
    throw ImportError("reshapes " + printShape(value.shape, emitter.marker) + " to " +
                      printShape(shape, emitter.marker) + ", which has another number of elements");
  if (llvm::is_contained(shape, 0)) {
    if (!value.isKnown())
      throw ImportError("makes a tensor without elements");
    return Value::ofKnown(value.dtype, value.known->isFloat() ? Known::ofReals(shape, {})
                                                              : Known::ofInts(shape, {}));
  }
  std::vector<Span> spans = findSpans(value.shape, shape);
  if (onlyRenames(value, spans))
    return renameDims(value, spans, shape);
  if (value.isKnown() && !listsTablePerSample(emitter, value, spans))
    return reshapeKnown(value, spans, shape);
  if (llvm::any_of(spans, [](const Span &span) { return span.sizes.empty(); }))
    return reshape(emitter, mergeSpans(emitter, value, spans), shape);

  // Repeated dims stay repeated, unless their span also has other dims.
  std::vector<unsigned> inDims(value.dims), outDims;
  std::vector<const Span *> moved;
  for (const Span &span : spans) {
    if (llvm::all_of(span.in, [&](unsigned dim) { return value.coreDim(dim) < 0; }))
      continue;
    moved.push_back(&span);
    inDims.insert(inDims.end(), span.in.begin(), span.in.end());
    outDims.insert(outDims.end(), span.out.begin(), span.out.end());
  }
  llvm::sort(inDims);
  inDims.erase(std::unique(inDims.begin(), inDims.end()), inDims.end());
  llvm::SmallVector<int64_t> sizes, in, out;
  llvm::SmallVector<int64_t> countOf(value.rank(), 0);
  for (const Span *span : moved) {
    sizes.append(span->sizes.begin(), span->sizes.end());
    for (size_t i = 0; i < span->in.size(); ++i)
      countOf[span->in[i]] = span->inCounts[i];
    out.append(span->outCounts.begin(), span->outCounts.end());
  }
  for (unsigned dim : inDims)
    in.push_back(countOf[dim]);
  mlir::Value core = emitter.reshape(emitter.at(value, inDims), sizes, in, out);
  return Value::ofCore(value.dtype, shape, outDims, core);
}

//===- slice ---------------------------------------------------------------===//

static Value sliceKnown(const Value &value, unsigned axis, int64_t start, int64_t step,
                        int64_t count) {
  unsigned core = value.coreDim(axis);
  const Known &known = *value.known;
  Shape shape = value.shape, coreShape = value.coreShape();
  shape[axis] = coreShape[core] = count;
  if (known.isAffine() && count > 0) {
    std::vector<int64_t> steps = known.coefficients();
    int64_t offset = known.offset() + steps[core] * start;
    steps[core] *= step;
    return Value::ofKnown(value.dtype, shape, value.dims,
                          Known::affine(coreShape, offset, steps, known.isFloat()));
  }
  std::vector<int64_t> ints;
  std::vector<double> reals;
  forEachIndex(coreShape, [&](Shape index) {
    index[core] = start + step * index[core];
    if (known.isFloat())
      reals.push_back(known.realAt(index));
    else
      ints.push_back(known.intAt(index));
  });
  return Value::ofKnown(value.dtype, shape, value.dims,
                        known.isFloat() ? Known::ofReals(coreShape, std::move(reals))
                                        : Known::ofInts(coreShape, std::move(ints)));
}

Value slice(Emitter &emitter, const Value &value, unsigned axis, int64_t start, int64_t step,
            int64_t count) {
  if (step == 1 && start == 0 && count == value.shape[axis])
    return value;
  int core = value.coreDim(axis);
  Value result = value;
  result.shape[axis] = count;
  if (core < 0)
    return result;
  // The result is empty, but IR tensors must not be.
  if (count == 0)
    return Value::ofSplat(value.dtype, result.shape, 0);
  if (count <= 1)
    step = 1; // unused, and may be any number
  if (value.isKnown())
    return sliceKnown(value, axis, start, step, count);
  // Every n-th element of a dim of n-tuples, as x[.., ::2]: one of each tuple, without a gather.
  const int64_t size = value.shape[axis];
  if (step > 1 && start < step && size % step == 0 && count == size / step &&
      size % emitter.marker != 0) {
    Shape tuples = value.shape;
    tuples[axis] = count;
    tuples.insert(tuples.begin() + axis + 1, step);
    Value split = reshape(emitter, value, tuples);
    return squeeze(emitter, slice(emitter, split, axis + 1, start, 1, 1), {axis + 1});
  }
  if (step != 1) {
    Known indices = Known::affine({count}, start, {step}, false);
    return gather(emitter, value, Value::ofKnown(DType::I64, indices), axis);
  }
  Shape coreShape = value.coreShape();
  coreShape[core] = count;
  mlir::Value sliced =
      emitter.createOne("slice", {emitter.core(value)}, emitter.type(value.dtype, coreShape),
                        {emitter.integer("dim", core), emitter.integer("offset", start),
                         emitter.integer("size", count)});
  return Value::ofCore(value.dtype, result.shape, value.dims, sliced);
}

//===- concat --------------------------------------------------------------===//

/// Joins known values as a table, or as parts if the table would be larger than the parts.
static Value concatKnown(const std::vector<Value> &values, unsigned axis, const Shape &shape,
                         const std::vector<unsigned> &dims) {
  Value result;
  result.dtype = values[0].dtype;
  result.shape = shape;
  result.dims = dims;
  int64_t total = 0, elements = saturatedElements(result.coreShape());
  for (const Value &value : values)
    total += std::min(value.known->numElements(), kMaxKnownElements + 1) + value.shape[axis];
  if (std::min(elements, total) > kMaxKnownElements)
    throw ImportError("a table of more than " + std::to_string(kMaxKnownElements) +
                      " elements would have to be computed at import");
  if (elements > 64 && elements > total) {
    result.parts = std::make_shared<std::vector<Value>>(values);
    result.partsDim = axis;
    result.emitted = std::make_shared<mlir::Value>();
    return result;
  }
  std::vector<int64_t> ints;
  std::vector<double> reals;
  bool isFloat = kernels::isFloat(result.dtype);
  int core = result.coreDim(axis);
  forEachIndex(result.coreShape(), [&](const Shape &index) {
    const Value *part = &values[0];
    int64_t at = index[core];
    while (at >= part->shape[axis])
      at -= (part++)->shape[axis];
    Shape partIndex;
    for (unsigned dim : part->dims)
      partIndex.push_back(dim == axis ? at : index[result.coreDim(dim)]);
    if (isFloat)
      reals.push_back(part->known->realAt(partIndex));
    else
      ints.push_back(part->known->intAt(partIndex));
  });
  return Value::ofKnown(result.dtype, shape, dims,
                        isFloat ? Known::ofReals(result.coreShape(), std::move(reals))
                                : Known::ofInts(result.coreShape(), std::move(ints)));
}

Value concat(Emitter &emitter, const std::vector<Value> &values, unsigned axis) {
  Shape shape = values[0].shape;
  for (const Value &value : values)
    for (size_t dim = 0; dim < shape.size() && value.shape.size() == shape.size(); ++dim)
      shape[dim] = emitter.dependsOnBatch(value.shape[dim]) ? value.shape[dim] : shape[dim];
  shape[axis] = 0;
  std::vector<unsigned> dims{axis};
  std::vector<Value> parts;
  for (const Value &given : values) {
    Value value = overSamples(given, shape, emitter.marker);
    Shape same = value.shape;
    if (same.size() == shape.size())
      same[axis] = shape[axis];
    if (same != shape)
      throw ImportError("joins tensors of shapes " + printShape(values[0].shape, emitter.marker) +
                        " and " + printShape(value.shape, emitter.marker) + " along dim " +
                        std::to_string(axis));
    shape[axis] += value.shape[axis];
    if (shape[axis] > (int64_t(1) << 56)) // the sum of two such sizes fits
      throw ImportError("joins tensors to a dim of more than 2^56");
    if (value.shape[axis] == 0)
      continue;
    parts.push_back(value);
    dims.insert(dims.end(), value.dims.begin(), value.dims.end());
  }
  if (parts.size() == 1)
    return parts[0];
  if (parts.empty())
    return values[0];
  llvm::sort(dims);
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  // Numbers of the samples of each part, such as the labels [n .. 2n - 1, 0 .. n - 1] of two views:
  // they stay apart, because a table of them would belong to one batch size.
  bool numbersEachPart = llvm::all_of(parts, [&](const Value &value) {
    return value.isKnown() && value.known->isAffine() && emitter.dependsOnBatch(value.shape[axis]);
  });
  if (!numbersEachPart && llvm::all_of(parts, [](const Value &v) { return v.isKnown(); }))
    return concatKnown(parts, axis, shape, dims);

  Value result;
  result.dtype = parts[0].dtype;
  result.shape = shape;
  result.dims = dims;
  // Numbers of samples beside coordinates that are data: no table of them can be emitted.
  auto isOfSamples = [&](const Value &value) {
    return value.isKnown() && llvm::any_of(value.coreShape(), [&](int64_t size) {
             return emitter.dependsOnBatch(size);
           });
  };
  if (numbersEachPart || llvm::any_of(parts, isOfSamples)) {
    result.parts = std::make_shared<std::vector<Value>>(parts);
    result.partsDim = axis;
    result.emitted = std::make_shared<mlir::Value>();
    return result;
  }
  llvm::SmallVector<mlir::Value> operands;
  for (const Value &part : parts)
    operands.push_back(emitter.at(part, dims));
  mlir::Value core =
      emitter.createOne("concat", operands, emitter.type(parts[0].dtype, result.coreShape()),
                        {emitter.integer("dim", result.coreDim(axis))});
  return Value::ofCore(parts[0].dtype, shape, dims, core);
}

} // namespace tbc::frontend

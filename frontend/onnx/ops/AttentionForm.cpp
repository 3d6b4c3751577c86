//===- AttentionForm.cpp - Common parts of the attention ops of all domains -===//

#include "frontend/onnx/ops/AttentionForm.h"

#include <limits>

namespace tbc::frontend {

Value splitHeads(Emitter &e, const Value &value, int64_t heads) {
  if (value.rank() == 4)
    return value;
  if (value.rank() != 3 || heads < 1 || value.shape[2] % heads != 0)
    throw ImportError("cannot split " + printShape(value.shape, e.marker) + " into " +
                      std::to_string(heads) + " heads");
  Value split = reshape(e, value, {value.shape[0], value.shape[1], heads, value.shape[2] / heads});
  return transpose(e, split, {0, 2, 1, 3});
}

Value mergeHeads(Emitter &e, const Value &value) {
  Value rows = transpose(e, value, {0, 2, 1, 3});
  return reshape(e, rows, {rows.shape[0], rows.shape[1], rows.shape[2] * rows.shape[3]});
}

double lowestOf(DType dtype) {
  if (dtype == DType::F16)
    return -65504.0;
  double lowest = double(std::numeric_limits<float>::lowest());
  return dtype == DType::BF16 ? kernels::roundTo(DType::BF16, -3.3895313892515355e38) : lowest;
}

namespace {

/// Repeats key or value heads for the query heads that share them (GQA). Example: 2 heads repeated
/// to 8 gives each 4 times.
Value repeatHeads(Emitter &e, const Value &value, int64_t heads) {
  int64_t own = value.shape[1];
  if (own == heads)
    return value;
  if (own < 1 || heads % own != 0)
    throw ImportError(std::to_string(heads) + " query heads cannot share " + std::to_string(own) +
                      " key heads");
  Shape shape{value.shape[0], own, heads / own, value.shape[2], value.shape[3]};
  Value repeated = expand(e, unsqueeze(value, {2}), shape);
  return reshape(e, repeated, {shape[0], heads, shape[3], shape[4]});
}

void checkShapes(const AttentionForm &form, int64_t marker) {
  const Value &q = form.query, &k = form.key, &v = form.value;
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || k.shape[2] != v.shape[2])
    throw ImportError("needs queries, keys and values of rank 3 or 4 with as many keys as values");
  if (q.shape[3] != k.shape[3] || q.shape[0] != k.shape[0] || q.shape[0] != v.shape[0])
    throw ImportError("attends with " + printShape(q.shape, marker) + " to keys of " +
                      printShape(k.shape, marker) + " and values of " +
                      printShape(v.shape, marker));
}

/// Positions along one dim of [s, t], or one number per sample, broadcastable to [b, 1, s, t].
struct Positions {
  Value query, key;
};

Positions positionsOf(Emitter &e, const AttentionForm &form) {
  Shape shape{form.query.shape[2], form.key.shape[2]};
  auto index = [&](unsigned dim) {
    return Value::ofKnown(DType::I64, shape, {dim}, Known::affine({shape[dim]}, 0, {1}, false));
  };
  Value offset = cast(e, form.offset, DType::I64);
  if (offset.rank() == 1)
    offset = unsqueeze(offset, {1, 2, 3});
  return {elementwise(e, "add", {index(0), offset}), index(1)};
}

/// Returns the conditions under which a key is read; all must hold.
std::vector<Value> conditionsOf(Emitter &e, const AttentionForm &form) {
  std::vector<Value> conditions = form.allowed;
  if (!form.isCausal && form.left < 0 && form.right < 0)
    return conditions;
  Positions at = positionsOf(e, form);
  auto shifted = [&](int64_t by) {
    return elementwise(e, "add", {at.query, number(at.query, double(by))});
  };
  if (form.isCausal)
    conditions.push_back(compare(e, "le", at.key, at.query));
  if (form.left >= 0)
    conditions.push_back(compare(e, "ge", at.key, shifted(-form.left)));
  if (form.right >= 0)
    conditions.push_back(compare(e, "le", at.key, shifted(form.right)));
  return conditions;
}

} // namespace

AttentionResult attend(Emitter &e, AttentionForm form) {
  checkShapes(form, e.marker);
  int64_t heads = form.query.shape[1];
  Value key = repeatHeads(e, form.key, heads), value = repeatHeads(e, form.value, heads);
  AttentionResult result;
  Value scores = matmul(e, form.query, transpose(e, key, {0, 1, 3, 2}));
  scores = elementwise(e, "mul", {scores, number(scores, form.scale)});
  result.scores = scores;
  if (form.softcap != 0) {
    Value bounded =
        elementwise(e, "tanh", {elementwise(e, "div", {scores, number(scores, form.softcap)})});
    scores = elementwise(e, "mul", {bounded, number(scores, form.softcap)});
  }
  result.capped = scores;
  for (const Value &bias : form.biases)
    scores = elementwise(e, "add", {scores, cast(e, bias, scores.dtype)});
  std::vector<Value> conditions = conditionsOf(e, form);
  bool mayHideRows = false;
  for (const Value &condition : conditions) {
    Value bias = select(e, condition, number(scores, 0), number(scores, lowestOf(scores.dtype)));
    scores = elementwise(e, "add", {scores, bias});
    mayHideRows |= !condition.isKnown() && !condition.deferred;
  }
  result.masked = scores;
  DType dtype = scores.dtype;
  if (form.softmaxType)
    scores = cast(e, scores, *form.softmaxType);
  if (form.changeScores)
    scores = form.changeScores(scores);
  Value weights = softmax(e, scores, scores.rank() - 1);
  if (form.changeWeights)
    weights = form.changeWeights(weights);
  weights = cast(e, weights, dtype);
  // Masked weights are 0 already, except in fully masked rows; those become 0 here.
  if (mayHideRows)
    for (const Value &condition : conditions)
      weights = select(e, condition, weights, number(weights, 0));
  result.weights = weights;
  result.result = matmul(e, weights, value);
  return result;
}

//===- rotary --------------------------------------------------------------===//

namespace {

/// The rotary op on the whole last dim, if the angles are equal for all samples.
std::optional<Value> rotateHalves(Emitter &e, const Value &x, const Value &cos, const Value &sin) {
  unsigned s = x.rank() - 2, d = x.rank() - 1;
  for (const Value *table : {&cos, &sin})
    for (unsigned dim : table->dims)
      if (dim + 2 < table->rank())
        return std::nullopt;
  auto tableOf = [&](const Value &table) {
    return e.at(table, {table.rank() - 2, table.rank() - 1});
  };
  std::vector<unsigned> dims;
  mlir::Value input = coreWith(e, x, {s, d}, dims);
  mlir::Value core = e.createOne("rotary", {input, tableOf(cos), tableOf(sin)}, input.getType(),
                                 {e.flag("inverse", false)});
  return Value::ofCore(x.dtype, x.shape, dims, core);
}

} // namespace

Value rotate(Emitter &e, const Value &x, const Value &givenCos, const Value &givenSin,
             int64_t width, bool isInterleaved) {
  unsigned last = x.rank() - 1;
  int64_t size = x.shape[last];
  width = width == 0 ? size : width;
  if (x.rank() != 4 || width < 2 || width > size || width % 2 != 0)
    throw ImportError("cannot rotate " + std::to_string(width) + " elements of " +
                      printShape(x.shape, e.marker));
  auto tableOf = [&](Value table) {
    Shape rows{x.shape[2], width / 2};
    Shape own(table.shape.end() - std::min<size_t>(2, table.rank()), table.shape.end());
    if ((table.rank() != 2 && table.rank() != 3) || own != rows)
      throw ImportError("has cosines and sines of shape " + printShape(table.shape, e.marker) +
                        " for " + std::to_string(rows[0]) + " positions of " +
                        std::to_string(rows[1]) + " angles");
    return cast(e, table.rank() == 3 ? unsqueeze(table, {1}) : table, x.dtype);
  };
  Value cos = tableOf(givenCos), sin = tableOf(givenSin);
  Value rotated = width == size ? x : slice(e, x, last, 0, 1, width);
  std::optional<Value> whole;
  if (!isInterleaved)
    whole = rotateHalves(e, rotated, cos, sin);
  if (whole) {
    rotated = *whole;
  } else {
    Value first, second;
    Shape pairs = rotated.shape;
    pairs[last] = width / 2;
    if (isInterleaved) {
      pairs.push_back(2);
      Value split = reshape(e, rotated, pairs);
      first = squeeze(e, slice(e, split, last + 1, 0, 1, 1), {last + 1});
      second = squeeze(e, slice(e, split, last + 1, 1, 1, 1), {last + 1});
    } else {
      first = slice(e, rotated, last, 0, 1, width / 2);
      second = slice(e, rotated, last, width / 2, 1, width / 2);
    }
    auto times = [&](const Value &a, const Value &b) { return elementwise(e, "mul", {a, b}); };
    Value real = elementwise(e, "sub", {times(first, cos), times(second, sin)});
    Value imaginary = elementwise(e, "add", {times(second, cos), times(first, sin)});
    if (isInterleaved)
      rotated = reshape(
          e, concat(e, {unsqueeze(real, {last + 1}), unsqueeze(imaginary, {last + 1})}, last + 1),
          rotated.shape);
    else
      rotated = concat(e, {real, imaginary}, last);
  }
  if (width == size)
    return rotated;
  return concat(e, {rotated, slice(e, x, last, width, 1, size - width)}, last);
}

} // namespace tbc::frontend

//===- Attention.cpp - Attention, its gradient, rotary embedding -----------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Attention.h"
#include "runtime/kernels/AttentionMask.h"
#include "runtime/kernels/AttentionScore.h"
#include "runtime/kernels/Gemm.h"
#include "runtime/kernels/HeadLayout.h"
#include "runtime/kernels/PackedAttention.h"

#include <cmath>
#include <optional>
#include <string_view>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

struct AttentionSizes {
  int64_t batch, heads, keyHeads, queries, keys, width, valueWidth;

  Shape rowShape() const { return {batch, heads, queries}; }
  /// b, h, s and t.
  std::array<int64_t, 4> scoreSizes() const { return {batch, heads, queries, keys}; }
};

AttentionSizes attentionSizes(const Tensor &q, const Tensor &k, const Tensor &v) {
  require(q.shape().size() == 4 && k.shape().size() == 4 && v.shape().size() == 4,
          "attention needs q [b, h, s, d], k [b, hk, t, d] and v [b, hk, t, e]");
  AttentionSizes sizes = {q.shape()[0], q.shape()[1], k.shape()[1], q.shape()[2],
                          k.shape()[2], q.shape()[3], v.shape()[3]};
  requireShape("k", k.shape(), {sizes.batch, sizes.keyHeads, sizes.keys, sizes.width});
  requireShape("v", v.shape(), {sizes.batch, sizes.keyHeads, sizes.keys, sizes.valueWidth});
  require(sizes.keyHeads > 0 && sizes.heads % sizes.keyHeads == 0, [&] {
    return std::to_string(sizes.heads) + " query heads do not share " +
           std::to_string(sizes.keyHeads) + " key heads evenly";
  });
  return sizes;
}

template <typename T> std::vector<T> transposed(int64_t rows, int64_t columns, const T *a) {
  std::vector<T> b(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      b[j * rows + i] = a[i * columns + j];
  return b;
}

template <typename T>
std::vector<T> product(int64_t m, int64_t n, int64_t k, const T *a, const T *b) {
  std::vector<typename Total<T>::Type> totals(m * n, 0);
  multiplyAdd<T>(m, n, k, a, b, totals.data());
  return finish<T>(totals);
}

/// scale * (q . k) of one head, queries x keys.
template <typename T>
std::vector<T> scores(const AttentionSizes &sizes, const T *q, const T *k, T scale) {
  std::vector<T> z = product(sizes.queries, sizes.keys, sizes.width, q,
                             transposed(sizes.keys, sizes.width, k).data());
  for (T &score : z)
    score = score * scale;
  return z;
}

/// The readable keys of every query of a sample.
std::vector<ReadableKeys> rowsOf(const AttentionMask &mask, const AttentionSizes &sizes,
                                 int64_t sample) {
  std::vector<ReadableKeys> rows;
  for (int64_t i = 0; i < sizes.queries; ++i)
    rows.push_back(mask.row(sample, i));
  return rows;
}

/// Sets the scores of a flat row to 0.
template <typename T> void flatten(T *row, const ReadableKeys &readable) {
  if (readable.isFlat)
    std::fill(row, row + readable.keys.size(), integer<T>(0));
}

/// Replaces one row of scores by e_ij = exp(z_ij - m), 0 for unreadable keys.
template <typename T> void exponentiate(T *row, const ReadableKeys &readable, T m) {
  for (size_t j = 0; j < readable.keys.size(); ++j)
    row[j] = readable.keys[j] ? expOf(row[j] - m) : integer<T>(0);
}

template <typename T> void divideRow(T *row, const ReadableKeys &readable, T l) {
  Divisor<T> divisor(l);
  for (size_t j = 0; j < readable.keys.size(); ++j)
    if (readable.keys[j])
      row[j] = divisor.divide(row[j]);
}

/// The row max over the readable keys and the sink; 0 in residues, and for a row without either.
/// NaN if a score is.
template <typename T>
T stabilizer(const T *row, const ReadableKeys &readable, const AttentionScore<T> &score,
             int64_t head) {
  T largest = integer<T>(0);
  if constexpr (!isResidue<T>) {
    bool isFirst = !score.hasSink();
    if (score.hasSink())
      largest = score.sink(head);
    for (size_t j = 0; j < readable.keys.size(); ++j)
      if (readable.keys[j]) {
        largest = isFirst || std::isnan(row[j]) ? row[j] : std::max(largest, row[j]);
        isFirst = false;
      }
  }
  return largest;
}

/// Swaps heads and tokens of a tensor of rank 4.
Tensor swapped(const KernelContext &context, const Tensor &tensor) {
  Attrs attrs;
  attrs.set("permutation", std::vector<int64_t>{0, 2, 1, 3});
  const Shape &shape = tensor.shape();
  return findKernel("transpose")(context, attrs, {tensor},
                                 {{tensor.dtype(), {shape[0], shape[2], shape[1], shape[3]}}})[0];
}

/// A tensor as [b, h, s, d].
Tensor headMajor(const KernelContext &context, const Tensor &tensor, const HeadLayout &layout) {
  if (!layout.isTokenMajor)
    return tensor;
  return swapped(context, tensor.reshaped(layout.shape()));
}

/// The inverse of headMajor, in the shape of `type`.
Tensor inOrder(const KernelContext &context, const Tensor &tensor, const HeadLayout &layout,
               const TensorType &type) {
  if (!layout.isTokenMajor)
    return tensor;
  return swapped(context, tensor).reshaped(type.shape);
}

/// Executes a kernel of head-major tensors on those of `layouts`, by operand and by result; others
/// have no layout.
using HeadLayouts = std::vector<std::optional<HeadLayout>>;
Tensors inHeadMajor(KernelFn kernel, const KernelContext &context, const Attrs &attrs,
                    Tensors inputs, const Types &resultTypes, const HeadLayouts &operands,
                    const HeadLayouts &results) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i])
      inputs[i] = headMajor(context, inputs[i], *operands[i]);
  Types types = resultTypes;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i] && results[i]->isTokenMajor)
      types[i].shape = {results[i]->batch, results[i]->heads, results[i]->tokens,
                        results[i]->width};
  Tensors made = kernel(context, attrs, inputs, types);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i])
      made[i] = inOrder(context, made[i], *results[i], resultTypes[i]);
  return made;
}

Tensors headMajorAttention(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                           const Types &resultTypes) {
  size_t firstMask = 3 + numScoreOperands(attrs);
  size_t firstDropout = firstMask + AttentionMask::numOperands(attrs);
  requireCounts(inputs, firstDropout + AttentionDropout::numOperands(attrs), resultTypes, 3);
  AttentionSizes sizes = attentionSizes(inputs[0], inputs[1], inputs[2]);
  AttentionMask mask(attrs, inputs, firstMask, sizes.batch, sizes.queries, sizes.keys);
  AttentionDropout dropout(attrs, inputs, firstDropout, sizes.batch, sizes.heads, sizes.queries,
                           sizes.keys);
  requireShape("o", resultTypes[0].shape,
               {sizes.batch, sizes.heads, sizes.queries, sizes.valueWidth});
  requireShape("m", resultTypes[1].shape, sizes.rowShape());
  requireShape("l", resultTypes[2].shape, sizes.rowShape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> q(inputs[0]), k(inputs[1]), v(inputs[2]);
    T scale = compositeConstant<T>(inputs[0].dtype(), attrs.getDouble("scale"));
    AttentionScore<T> score(attrs, inputs, 3, inputs[0].dtype(), sizes.scoreSizes());
    std::vector<T> o, m, l;
    std::vector<ReadableKeys> readable;
    for (int64_t head = 0; head < sizes.batch * sizes.heads; ++head) {
      if (head % sizes.heads == 0)
        readable = rowsOf(mask, sizes, head / sizes.heads);
      int64_t keyHead = head / (sizes.heads / sizes.keyHeads);
      std::vector<T> p = scores(sizes, q.begin() + head * sizes.queries * sizes.width,
                                k.begin() + keyHead * sizes.keys * sizes.width, scale);
      for (int64_t i = 0; i < sizes.queries; ++i) {
        T *row = p.data() + i * sizes.keys;
        score.apply(row, head / sizes.heads, head % sizes.heads, i);
        flatten(row, readable[i]);
        m.push_back(stabilizer(row, readable[i], score, head % sizes.heads));
        exponentiate(row, readable[i], m.back());
        Sum<T> sum;
        for (int64_t j = 0; j < sizes.keys; ++j)
          sum.add(row[j]);
        if (score.hasSink())
          sum.add(expOf(score.sink(head % sizes.heads) - m.back()));
        l.push_back(sum.result());
        divideRow(row, readable[i], l.back());
        dropout.apply(row, head / sizes.heads, head % sizes.heads, i);
      }
      std::vector<T> out = product(sizes.queries, sizes.valueWidth, sizes.keys, p.data(),
                                   v.begin() + keyHead * sizes.keys * sizes.valueWidth);
      o.insert(o.end(), out.begin(), out.end());
    }
    return {makeResult(context, resultTypes[0], std::move(o)),
            makeResult(context, resultTypes[1], std::move(m)),
            makeResult(context, resultTypes[2], std::move(l))};
  });
}

/// One head of the gradient: weights, dropped weights and gradients of scores, queries x keys.
template <typename T> struct HeadGradient {
  HeadGradient(const Attrs &attrs, const Tensors &inputs)
      : firstMask(7 + numScoreOperands(attrs)),
        firstDropout(firstMask + AttentionMask::numOperands(attrs)),
        sizes(checkedSizes(attrs, inputs, firstDropout)),
        mask(attrs, inputs, firstMask, sizes.batch, sizes.queries, sizes.keys),
        dropout(attrs, inputs, firstDropout, sizes.batch, sizes.heads, sizes.queries, sizes.keys),
        score(attrs, inputs, 7, inputs[1].dtype(), sizes.scoreSizes()), dout(inputs[0]),
        q(inputs[1]), k(inputs[2]), v(inputs[3]), o(inputs[4]), m(inputs[5]), l(inputs[6]),
        scale(compositeConstant<T>(inputs[1].dtype(), attrs.getDouble("scale"))) {}

  /// Computes head `head` of all samples' heads. `beforeCap` is the gradient of scale * (q . k),
  /// and dz that of the score; with a cap they differ.
  void compute(int64_t head) {
    int64_t s = sizes.queries, t = sizes.keys, d = sizes.width, e = sizes.valueWidth;
    int64_t sample = head / sizes.heads, local = head % sizes.heads;
    if (local == 0 || readable.empty())
      readable = rowsOf(mask, sizes, sample);
    const T *headQ = q.begin() + head * s * d, *headK = k.begin() + keyHead(head) * t * d;
    const T *headV = v.begin() + keyHead(head) * t * e, *headDo = dout.begin() + head * s * e;

    std::vector<T> products = scores(sizes, headQ, headK, scale), p = products;
    for (int64_t i = 0; i < s; ++i) {
      score.apply(&p[i * t], sample, local, i);
      flatten(&p[i * t], readable[i]);
      exponentiate(&p[i * t], readable[i], m[head * s + i]);
      divideRow(&p[i * t], readable[i], l[head * s + i]);
    }
    dropped = p;
    for (int64_t i = 0; i < s; ++i)
      dropout.apply(&dropped[i * t], sample, local, i);

    dz = product(s, t, e, headDo, transposed(t, e, headV).data()); // dp so far
    for (int64_t i = 0; i < s; ++i) {
      Sum<T> sum;
      for (int64_t c = 0; c < e; ++c)
        sum.add(headDo[i * e + c] * o[(head * s + i) * e + c]);
      T rowD = sum.result();
      dropout.apply(&dz[i * t], sample, local, i);
      for (int64_t j = 0; j < t; ++j)
        dz[i * t + j] = readable[i].isFlat ? integer<T>(0) : p[i * t + j] * (dz[i * t + j] - rowD);
    }
    beforeCap = dz;
    for (int64_t i = 0; i < s; ++i)
      score.multiplyDerivative(&beforeCap[i * t], &products[i * t]);
  }

  int64_t keyHead(int64_t head) const { return head / (sizes.heads / sizes.keyHeads); }

  static AttentionSizes checkedSizes(const Attrs &attrs, const Tensors &inputs,
                                     size_t firstDropout) {
    require(inputs.size() == firstDropout + AttentionDropout::numOperands(attrs),
            "a gradient of attention has a wrong number of operands");
    AttentionSizes sizes = attentionSizes(inputs[1], inputs[2], inputs[3]);
    Shape outShape = {sizes.batch, sizes.heads, sizes.queries, sizes.valueWidth};
    requireShape("do", inputs[0].shape(), outShape);
    requireShape("o", inputs[4].shape(), outShape);
    requireShape("m", inputs[5].shape(), sizes.rowShape());
    requireShape("l", inputs[6].shape(), sizes.rowShape());
    return sizes;
  }

  size_t firstMask, firstDropout;
  AttentionSizes sizes;
  AttentionMask mask;
  AttentionDropout dropout;
  AttentionScore<T> score;
  Operand<T> dout, q, k, v, o, m, l;
  T scale;
  std::vector<T> dropped, dz, beforeCap;
  std::vector<ReadableKeys> readable;
};

/// The gradient, added head by head; dk and dv are summed over the query heads of a key head.
Tensors headMajorGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, 3);
  require(inputs.size() >= 7, "attention_grad needs do, q, k, v, o, m and l");
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    HeadGradient<T> head(attrs, inputs);
    int64_t s = head.sizes.queries, t = head.sizes.keys, d = head.sizes.width,
            e = head.sizes.valueWidth;
    std::vector<T> dq;
    std::vector<typename Total<T>::Type> dk(size_t(head.k.size()), 0), dv(size_t(head.v.size()), 0);
    for (int64_t i = 0; i < head.sizes.batch * head.sizes.heads; ++i) {
      head.compute(i);
      const T *headQ = head.q.begin() + i * s * d, *headDo = head.dout.begin() + i * s * e;
      const T *headK = head.k.begin() + head.keyHead(i) * t * d;
      multiplyAdd<T>(t, e, s, transposed(s, t, head.dropped.data()).data(), headDo,
                     &dv[head.keyHead(i) * t * e]);
      for (T element : product(s, d, t, head.beforeCap.data(), headK))
        dq.push_back(element * head.scale);
      multiplyAdd<T>(t, d, s, transposed(s, t, head.beforeCap.data()).data(), headQ,
                     &dk[head.keyHead(i) * t * d]);
    }
    std::vector<T> keys = finish<T>(dk);
    for (T &element : keys)
      element = element * head.scale;
    return {makeResult(context, resultTypes[0], std::move(dq)),
            makeResult(context, resultTypes[1], std::move(keys)),
            makeResult(context, resultTypes[2], finish<T>(dv))};
  });
}

/// The gradient of one bias: dz, summed over the dims that the bias lacks.
Tensors headMajorBiasGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                          const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, 1);
  require(inputs.size() >= 7, "attention_bias_grad needs do, q, k, v, o, m and l");
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    HeadGradient<T> head(attrs, inputs);
    size_t bias = size_t(attrs.getInt("bias"));
    require(bias < head.score.numBiases(), "attention_bias_grad has no such bias");
    requireShape("the result", resultTypes[0].shape, head.score.biasShape(bias));
    std::vector<Sum<T>> sums(size_t(numElements(resultTypes[0].shape)));
    const AttentionSizes &sizes = head.sizes;
    for (int64_t i = 0; i < sizes.batch * sizes.heads; ++i) {
      head.compute(i);
      for (int64_t query = 0; query < sizes.queries; ++query)
        for (int64_t key = 0; key < sizes.keys; ++key)
          sums[size_t(head.score.index(bias, i / sizes.heads, i % sizes.heads, query, key))].add(
              head.dz[size_t(query * sizes.keys + key)]);
    }
    return {makeResult(context, resultTypes[0], resultsOf(sums))};
  });
}

/// Joins two attentions, weighted by their shares of the common row sum.
Tensors headMajorMerge(const KernelContext &context, const Attrs &, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, 6, resultTypes, 3);
  for (size_t i = 0; i < 3; ++i) {
    requireShape("the other operand", inputs[i + 3].shape(), inputs[i].shape());
    requireShape("the result", resultTypes[i].shape, inputs[i].shape());
  }
  require(inputs[0].shape().size() == 4, "attention_merge needs o [b, h, s, e]");
  Shape rows(inputs[0].shape().begin(), inputs[0].shape().end() - 1);
  requireShape("m", inputs[1].shape(), rows);
  requireShape("l", inputs[2].shape(), rows);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    // The quotient of a part is lost if its row sum is 0, which happens by chance for 1 of 251
    // residues.
    require(!std::is_same_v<T, Residue251>,
            "attention around a ring has no residues modulo 251; take --arith residue");
    Operand<T> o1(inputs[0]), m1(inputs[1]), l1(inputs[2]);
    Operand<T> o2(inputs[3]), m2(inputs[4]), l2(inputs[5]);
    int64_t width = inputs[0].shape().back();
    std::vector<T> o(o1.size()), m(m1.size()), l(l1.size());
    for (int64_t row = 0; row < int64_t(m.size()); ++row) {
      bool first = !(l1[row] == zero), second = !(l2[row] == zero);
      // In residues every row max is 0.
      m[row] = first ? m1[row] : m2[row];
      if constexpr (!isResidue<T>)
        if (first && second)
          m[row] = std::max(m1[row], m2[row]);
      T part1 = first ? l1[row] * expOf(m1[row] - m[row]) : zero;
      T part2 = second ? l2[row] * expOf(m2[row] - m[row]) : zero;
      l[row] = part1 + part2;
      Divisor<T> divisor(l[row]);
      for (int64_t i = row * width; i < (row + 1) * width; ++i)
        o[i] = first && second ? divisor.divide(part1 * o1[i] + part2 * o2[i])
               : first         ? o1[i]
                               : o2[i];
    }
    return {makeResult(context, resultTypes[0], std::move(o)),
            makeResult(context, resultTypes[1], std::move(m)),
            makeResult(context, resultTypes[2], std::move(l))};
  });
}

/// The layouts of tensors with these letters.
template <typename ShapeOf>
HeadLayouts layoutsOf(const Attrs &attrs, std::string_view letters, ShapeOf shapeOf) {
  HeadLayouts layouts;
  for (size_t i = 0; i < letters.size(); ++i)
    layouts.push_back(HeadLayout(attrs, letters[i], shapeOf(i)));
  return layouts;
}

Tensors withLayouts(KernelFn kernel, const KernelContext &context, const Attrs &attrs,
                    const Tensors &inputs, const Types &resultTypes, std::string_view operands,
                    std::string_view results) {
  require(inputs.size() >= operands.size() && resultTypes.size() >= results.size(),
          "attention has too few operands or results");
  return inHeadMajor(kernel, context, attrs, inputs, resultTypes,
                     layoutsOf(attrs, operands, [&](size_t i) { return inputs[i].shape(); }),
                     layoutsOf(attrs, results, [&](size_t i) { return resultTypes[i].shape; }));
}

Tensors attention(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  return withLayouts(headMajorAttention, context, attrs, inputs, resultTypes, "qkv", "o");
}

constexpr std::string_view gradientOperands = "oqkvo"; // do, q, k, v, o

Tensors attentionGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  return withLayouts(headMajorGrad, context, attrs, inputs, resultTypes, gradientOperands, "qkv");
}

Tensors attentionBiasGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                          const Types &resultTypes) {
  return withLayouts(headMajorBiasGrad, context, attrs, inputs, resultTypes, gradientOperands, "");
}

Tensors attentionMerge(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  if (!attrs.getBool("token_major", false))
    return headMajorMerge(context, attrs, inputs, resultTypes);
  requireCounts(inputs, 6, resultTypes, 3);
  const HeadLayout layout = layoutOfMerge(attrs, inputs[0].shape(), inputs[1].shape());
  return inHeadMajor(headMajorMerge, context, attrs, inputs, resultTypes,
                     {layout, std::nullopt, std::nullopt, layout}, {layout});
}

/// Columns [first, first + count) of x[b, s, c].
Tensor columnsOf(const KernelContext &context, const Tensor &x, int64_t first, int64_t count) {
  Attrs attrs;
  attrs.set("dim", int64_t(2));
  attrs.set("offset", first);
  attrs.set("size", count);
  return findKernel("slice")(context, attrs, {x},
                             {{x.dtype(), {x.shape()[0], x.shape()[1], count}}})[0];
}

/// Copies the parts of the packed tensor, and joins their gradients.
template <KernelFn Plain>
Tensors packed(std::string_view op, const KernelContext &context, const Attrs &attrs,
               const Tensors &inputs, const Types &resultTypes) {
  const PackedAttention parts(op);
  const size_t first = size_t(parts.packedOperand());
  require(inputs.size() > first, "packed attention has too few operands");
  const Tensor &x = inputs[first];
  Tensors operands = parts.operands(inputs);
  Types types = parts.results(resultTypes);
  std::string letters = "QKV";
  for (size_t i = 0; i < PackedAttention::numParts; ++i) {
    const HeadLayout layout(attrs, "qkv"[i], x.shape());
    operands[first + i] = columnsOf(context, x, layout.first, layout.heads * layout.width);
    if (parts.isGradient)
      types[i].shape = operands[first + i].shape();
  }
  if (attrs.has("token_major"))
    letters += attrs.getString("token_major");
  Attrs plain;
  for (const auto &[name, value] : attrs.entries())
    if (name != packedWidthAttr)
      plain.set(name, value);
  plain.set("token_major", letters);
  Tensors made = Plain(context, plain, operands, types);
  if (!parts.isGradient)
    return made;
  Attrs joins;
  joins.set("dim", int64_t(2));
  return findKernel("concat")(context, joins, made, resultTypes);
}

Tensors packedAttention(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                        const Types &resultTypes) {
  return packed<attention>("packed_attention", context, attrs, inputs, resultTypes);
}

Tensors packedAttentionGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                            const Types &resultTypes) {
  return packed<attentionGrad>("packed_attention_grad", context, attrs, inputs, resultTypes);
}

Tensors rotary(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 1);
  const Shape &shape = inputs[0].shape();
  require(shape.size() >= 2 && shape.back() % 2 == 0,
          "rotary needs x [.., s, d] with an even last dim");
  bool isTokenMajor = attrs.getBool("token_major", false);
  int64_t length = shape[isTokenMajor ? 1 : shape.size() - 2], half = shape.back() / 2;
  int64_t rowsPerToken = 1;
  if (isTokenMajor) {
    require(shape.size() == 4 || (shape.size() == 3 && !inputs[1].shape().empty()),
            "token-major rotary needs x [b, s, h, d] or [b, s, h * d]");
    if (shape.size() == 3)
      half = inputs[1].shape().back();
    rowsPerToken = std::max<int64_t>(1, numElements(shape) / std::max<int64_t>(1, 2 * half) /
                                            std::max<int64_t>(1, shape[0] * length));
  }
  requireShape("the result", resultTypes[0].shape, shape);
  Shape table = {length, half};
  bool isPerSample = inputs[1].shape().size() == 3 && shape.size() >= 3;
  if (isPerSample)
    table.insert(table.begin(), shape[0]);
  requireShape("cos", inputs[1].shape(), table);
  requireShape("sin", inputs[2].shape(), table);
  bool inverse = attrs.getBool("inverse", false);
  bool isInterleaved = attrs.getBool("interleaved", false);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), cos(inputs[1]), sin(inputs[2]);
    std::vector<T> y(x.size());
    int64_t rows = x.size() && half ? x.size() / (2 * half) : 0;
    int64_t rowsPerSample = isPerSample && rows ? rows / shape[0] : std::max<int64_t>(rows, 1);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < half; ++i) {
        int64_t first = row * 2 * half + (isInterleaved ? 2 * i : i);
        int64_t second = first + (isInterleaved ? 1 : half);
        int64_t angle = (row / rowsPerSample * length + row / rowsPerToken % length) * half + i;
        T sine = inverse ? -sin[angle] : sin[angle];
        y[first] = x[first] * cos[angle] - x[second] * sine;
        y[second] = x[second] * cos[angle] + x[first] * sine;
      }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

} // namespace

const KernelTable &tbc::kernels::attentionKernels() {
  static const KernelTable table = {{"attention", attention},
                                    {"attention_grad", attentionGrad},
                                    {"attention_bias_grad", attentionBiasGrad},
                                    {"attention_merge", attentionMerge},
                                    {"packed_attention", packedAttention},
                                    {"packed_attention_grad", packedAttentionGrad},
                                    {"rotary", rotary}};
  return table;
}

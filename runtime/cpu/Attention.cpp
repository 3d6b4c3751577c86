//===- Attention.cpp - Native attention by tiles --------------------------------===//
//
// Flash attention: the score matrix is never stored as a whole. A piece of work takes `tileQueries`
// queries of one head and iterates over the keys they may read, `tileKeys` at a time, with a
// running row max and row sum. Source: Dao et al., "FlashAttention" (2022), algorithm 1; Milakov
// and Gimelshein, "Online normalizer calculation for softmax" (2018).
//
// The gradient recomputes the scores of a tile from the saved statistics (algorithm 4). One piece
// is one key head, so the gradients of its keys are summed in one order.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/AttentionTile.h"
#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/kernels/AttentionScore.h"
#include "runtime/kernels/HeadLayout.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::HeadLayout;

namespace {

/// The layouts of q, k and v, and of o, which no operand of the forward pass has.
struct Layouts {
  HeadLayout q, k, v, o;

  Layouts(const Attrs &attrs, const kernels::Shape &q, const kernels::Shape &k,
          const kernels::Shape &v)
      : q(attrs, 'q', q), k(attrs, 'k', k), v(attrs, 'v', v),
        o(this->q.batch, this->q.heads, this->q.tokens, this->v.width,
          HeadLayout::isTokenMajorIn(attrs, 'o')) {}
};

struct Sizes {
  int64_t batch, heads, keyHeads, queries, keys, width, valueWidth;

  explicit Sizes(const Layouts &layouts)
      : batch(layouts.q.batch), heads(layouts.q.heads), keyHeads(layouts.k.heads),
        queries(layouts.q.tokens), keys(layouts.k.tokens), width(layouts.q.width),
        valueWidth(layouts.v.width) {}
  int64_t keyHead(int64_t head) const { return head / (heads / keyHeads); }
};

/// Runs a matmul with operands of f32 or bf16.
void multiply(MatmulShape shape, DType dtype, const void *a, const void *b, float *c) {
  shape.input = dtype;
  std::shared_ptr<const Matmul> product = Matmul::find(shape);
  kernels::require(product != nullptr, "this CPU has no matmul of this shape");
  product->run(a, b, c);
}

MatmulShape shapeOf(int64_t m, int64_t n, int64_t k, int64_t strideA, int64_t strideB,
                    int64_t strideC) {
  MatmulShape shape;
  shape.m = m, shape.n = n, shape.k = k;
  shape.strideA = strideA, shape.strideB = strideB, shape.strideC = strideC;
  return shape;
}

/// A tile of f32 as an operand of a matmul: used in place, or rounded to bf16.
class TileOperand {
public:
  TileOperand(DType dtype, int64_t elements)
      : isF32(dtype == DType::F32), bits(isF32 ? 0 : size_t(elements)) {}
  /// Converts rows with the given stride; the result has the same stride.
  const void *of(const float *tile, int64_t rows, int64_t columns, int64_t stride) {
    if (isF32)
      return tile;
    for (int64_t row = 0; row < rows; ++row)
      vectors().toBF16(tile + row * stride, bits.data() + row * stride, columns);
    return bits.data();
  }

private:
  bool isF32;
  std::vector<uint16_t> bits;
};

/// What an attention does to scale * (q . k): the cap, the biases and the sink.
struct ScoreTerms {
  struct Bias {
    kernels::BiasLayout layout;
    size_t operand;
    DType dtype;
  };
  float cap = 0; // 0: no cap
  std::vector<Bias> biases;
  std::optional<size_t> sink; // its operand
  DType sinkType = DType::F32;
  bool isSupported = true;

  ScoreTerms(const Attrs &attrs, const Types &operands, size_t first, const Sizes &sizes)
      : cap(float(attrs.getDouble("soft_cap", 0))) {
    for (kernels::BiasLayout &layout :
         kernels::biasLayouts(attrs, {sizes.batch, sizes.heads, sizes.queries, sizes.keys})) {
      biases.push_back({layout, first, operands[first].dtype});
      isSupported &= isNativeFloat(operands[first++].dtype);
    }
    if (attrs.getBool("sink", false)) {
      sink = first;
      sinkType = operands[first].dtype;
      isSupported &= isNativeFloat(sinkType);
    }
  }

  /// The sink's score of a head; -inf without a sink.
  float sinkOf(const Buffers &buffers, int64_t head) const {
    if (!sink)
      return -std::numeric_limits<float>::infinity();
    return *FloatsIn(buffers.operands[*sink], sinkType).at(head, 1);
  }

  /// Changes scale * (q . k) of some keys of a query to scores. `slopes` gets the derivative of the
  /// cap, if there is a cap.
  void apply(const Buffers &buffers, int64_t sample, int64_t head, int64_t query, int64_t key,
             int64_t count, float *scores, float *slopes) const {
    if (cap > 0)
      for (int64_t j = 0; j < count; ++j) {
        float tanh = std::tanh(scores[j] / cap);
        scores[j] = tanh * cap;
        slopes[j] = 1 - tanh * tanh;
      }
    for (const Bias &bias : biases) {
      const auto &s = bias.layout.strides;
      int64_t at = sample * s[0] + head * s[1] + query * s[2] + key * s[3];
      FloatsIn floats(buffers.operands[bias.operand], bias.dtype);
      if (s[3] != 0)
        vectors().addScaled(floats.at(at, count), scores, count, 1);
      else
        std::for_each_n(scores, count, [b = *floats.at(at, 1)](float &score) { score += b; });
    }
  }
};

/// The state shared by attention and its gradients.
struct Prepared {
  Layouts layouts;
  Sizes sizes;
  AttentionMasking masking;
  ScoreTerms terms;
  DType dtype;
  float scale;

  int64_t width() const { return byteWidth(dtype); }
  /// Returns the row of a token of a head of a sample.
  const char *row(const void *base, const HeadLayout &layout, int64_t sample, int64_t head,
                  int64_t token) const {
    return static_cast<const char *>(base) + layout.offset(sample, head, token) * width();
  }
  bool isSupported() const { return masking.isSupported() && terms.isSupported; }
  /// Computes the scores [rows x keys] of queries from `query` of a head, with a row stride of
  /// tileKeys. `slopes`: see ScoreTerms.
  void scores(const Buffers &buffers, int64_t sample, int64_t headIndex, int64_t query,
              const char *q, int64_t rows, const char *k, int64_t first, int64_t count,
              float *scores, float *slopes) const {
    const int64_t betweenKeys = layouts.k.tokenStride();
    MatmulShape shape =
        shapeOf(rows, count, sizes.width, layouts.q.tokenStride(), betweenKeys, tileKeys);
    shape.transposedB = true;
    multiply(shape, dtype, q, k + first * betweenKeys * width(), scores);
    for (int64_t row = 0; row < rows; ++row) {
      vectors().scale(scores + row * tileKeys, count, scale);
      terms.apply(buffers, sample, headIndex, query + row, first, count, scores + row * tileKeys,
                  slopes ? slopes + row * tileKeys : nullptr);
    }
  }
};

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

class Forward {
public:
  Forward(const Prepared &prepared, const Buffers &buffers)
      : prepared(prepared), buffers(buffers), scores(size_t(tileQueries * tileKeys)),
        slopes(prepared.terms.cap > 0 ? scores.size() : 0),
        probabilities(prepared.dtype, tileQueries * tileKeys) {}

  /// Processes the tile of queries from `first` of a sample, for heads [firstHead, endHead).
  void run(int64_t sample, int64_t first, int64_t firstHead, int64_t endHead) {
    const Sizes &sizes = prepared.sizes;
    int64_t rows = std::min(tileQueries, sizes.queries - first);
    AttentionTile tile(prepared.masking, buffers, sample, first, rows);
    for (int64_t head = firstHead; head < endHead; ++head)
      runHead(tile, sample, head, first, rows);
  }

private:
  void runHead(AttentionTile &tile, int64_t sample, int64_t head, int64_t first, int64_t rows) {
    const Sizes &sizes = prepared.sizes;
    const int64_t keyHead = sizes.keyHead(head);
    const Layouts &layouts = prepared.layouts;
    const char *q = prepared.row(buffers.operands[0], layouts.q, sample, head, first);
    const char *k = prepared.row(buffers.operands[1], layouts.k, sample, keyHead, 0);
    const char *v = prepared.row(buffers.operands[2], layouts.v, sample, keyHead, 0);
    out.assign(size_t(rows * sizes.valueWidth), 0);
    largest.assign(size_t(rows), prepared.terms.sinkOf(buffers, head));
    denominator.assign(size_t(rows), prepared.terms.sink ? 1 : 0);
    readsAny.assign(size_t(rows), false);
    for (int64_t key = tile.firstKey(); key < tile.endKey(); key += tileKeys) {
      int64_t count = std::min(tileKeys, tile.endKey() - key);
      prepared.scores(buffers, sample, head, first, q, rows, k, key, count, scores.data(),
                      slopes.data());
      for (int64_t row = 0; row < rows; ++row)
        addRow(tile, row, key, count);
      tile.drop(head, key, count, scores.data());
      const int64_t betweenKeys = layouts.v.tokenStride();
      MatmulShape shape =
          shapeOf(rows, sizes.valueWidth, count, tileKeys, betweenKeys, sizes.valueWidth);
      shape.accumulates = true;
      multiply(shape, prepared.dtype, probabilities.of(scores.data(), rows, count, tileKeys),
               v + key * betweenKeys * prepared.width(), out.data());
    }
    finish(sample, head, first, rows);
  }

  /// Replaces a row's scores of some keys by exponentials, and updates the running row max and row
  /// sum.
  void addRow(const AttentionTile &tile, int64_t row, int64_t key, int64_t count) {
    float *z = scores.data() + row * tileKeys;
    if (!tile.mask(row, key, count, z, -std::numeric_limits<float>::infinity())) {
      std::fill_n(z, count, 0.0f);
      return;
    }
    readsAny[size_t(row)] = true;
    float before = largest[size_t(row)];
    float most = std::max(before, vectors().largest(z, count)); // leaves NaN out
    // Biases of -inf may hide all keys so far; their weights are 0 for any finite row max.
    const bool isFinite = most > -std::numeric_limits<float>::infinity();
    float sum = vectors().expSum(z, count, isFinite ? most : 0);
    if (before > -std::numeric_limits<float>::infinity() && before < most) {
      float factor = std::exp(before - most);
      denominator[size_t(row)] *= factor;
      vectors().scale(out.data() + row * prepared.sizes.valueWidth, prepared.sizes.valueWidth,
                      factor);
    }
    denominator[size_t(row)] += sum;
    largest[size_t(row)] = most;
  }

  void finish(int64_t sample, int64_t head, int64_t first, int64_t rows) {
    const Sizes &sizes = prepared.sizes;
    int64_t e = sizes.valueWidth, at = (sample * sizes.heads + head) * sizes.queries + first;
    FloatsOut o(buffers.results[0], prepared.dtype);
    for (int64_t row = 0; row < rows; ++row) {
      float l = denominator[size_t(row)];
      // A row that reads keys and has -inf as the score of each: 0 / 0.
      if (l == 0 && readsAny[size_t(row)])
        l = std::numeric_limits<float>::quiet_NaN();
      float *from = out.data() + row * e;
      float *to = o.at(prepared.layouts.o.offset(sample, head, first + row), e);
      std::copy_n(from, e, to);
      vectors().scale(to, e, l == 0 ? 0 : 1 / l);
      o.finish();
      // The row max leaves NaN out, the sum does not.
      buffers.result<float>(1)[at + row] = l == 0 ? 0 : std::isnan(l) ? l : largest[size_t(row)];
      buffers.result<float>(2)[at + row] = l;
    }
  }

  const Prepared &prepared;
  const Buffers &buffers;
  std::vector<float> scores, slopes, out, largest, denominator;
  std::vector<bool> readsAny; // of each row
  TileOperand probabilities;
};

/// Heads that share the mask of a tile, to spread its cost.
constexpr int64_t headsPerPiece = 4;

NativeKernel attention(const Prepared &prepared) {
  return [prepared](Threads &threads, const Buffers &buffers) {
    const Sizes &sizes = prepared.sizes;
    int64_t tiles = (sizes.queries + tileQueries - 1) / tileQueries;
    int64_t groups = (sizes.heads + headsPerPiece - 1) / headsPerPiece;
    threads.run(sizes.batch * tiles * groups, [&](int64_t piece) {
      int64_t sample = piece / (tiles * groups), tile = piece / groups % tiles;
      int64_t head = piece % groups * headsPerPiece;
      Forward(prepared, buffers)
          .run(sample, tile * tileQueries, head, std::min(sizes.heads, head + headsPerPiece));
    });
  };
}

//===----------------------------------------------------------------------===//
// Gradient
//===----------------------------------------------------------------------===//

/// The weights and the gradients of scores of a tile, from the operands of the gradient.
class GradientTile {
public:
  GradientTile(const Prepared &prepared, const Buffers &buffers)
      : p(size_t(tileQueries * tileKeys)), ds(p.size()), prepared(prepared), buffers(buffers),
        slopes(prepared.terms.cap > 0 ? p.size() : 0) {}

  /// Begins with the queries from `firstQuery` of a head.
  void begin(int64_t sampleIndex, int64_t headIndex, int64_t firstQuery, int64_t count) {
    const Layouts &layouts = prepared.layouts;
    sample = sampleIndex, head = headIndex, first = firstQuery, rows = count;
    index = sample * prepared.sizes.heads + head;
    const int64_t keyHead = prepared.sizes.keyHead(head);
    dout = prepared.row(buffers.operands[0], layouts.o, sample, head, first);
    q = prepared.row(buffers.operands[1], layouts.q, sample, head, first);
    k = prepared.row(buffers.operands[2], layouts.k, sample, keyHead, 0);
    v = prepared.row(buffers.operands[3], layouts.v, sample, keyHead, 0);
    takeRowSums();
  }

  /// Computes p, the weights, and ds, the gradients of the scores times `factor`, for some keys.
  void compute(AttentionTile &tile, int64_t key, int64_t count, float factor) {
    const Layouts &layouts = prepared.layouts;
    prepared.scores(buffers, sample, head, first, q, rows, k, key, count, p.data(), slopes.data());
    for (int64_t row = 0; row < rows; ++row)
      takeProbabilities(tile, row, index * prepared.sizes.queries + first + row, key, count);
    const int64_t betweenKeys = layouts.v.tokenStride();
    MatmulShape shape = shapeOf(rows, count, prepared.sizes.valueWidth, layouts.o.tokenStride(),
                                betweenKeys, tileKeys);
    shape.transposedB = true;
    multiply(shape, prepared.dtype, dout, v + key * betweenKeys * prepared.width(), ds.data());
    tile.drop(head, key, count, ds.data());
    for (int64_t row = 0; row < rows; ++row) {
      float *line = ds.data() + row * tileKeys;
      // A flat row has z = 0 for any operands, so its scores have no gradient.
      if (tile.isFlat(row))
        std::fill_n(line, count, 0.0f);
      else
        vectors().softmaxGrad(p.data() + row * tileKeys, line, count, rowSums[size_t(row)], factor);
    }
  }
  /// Multiplies ds by the derivative of the cap.
  void multiplySlopes(int64_t count) {
    if (!slopes.empty())
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t j = 0; j < count; ++j)
          ds[size_t(row * tileKeys + j)] *= slopes[size_t(row * tileKeys + j)];
  }

  std::vector<float> p, ds;
  const char *dout = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;
  /// Of the head among those of all samples.
  int64_t index = 0;

private:
  /// D_i = sum_e do_ie * o_ie
  void takeRowSums() {
    int64_t e = prepared.sizes.valueWidth;
    FloatsIn cotangents(buffers.operands[0], prepared.dtype);
    FloatsIn o(buffers.operands[4], prepared.dtype);
    rowSums.resize(size_t(rows));
    for (int64_t row = 0; row < rows; ++row) {
      int64_t at = prepared.layouts.o.offset(sample, head, first + row);
      rowSums[size_t(row)] = vectors().dot(cotangents.at(at, e), o.at(at, e), e);
    }
  }

  void takeProbabilities(const AttentionTile &tile, int64_t row, int64_t at, int64_t key,
                         int64_t count) {
    float *z = p.data() + row * tileKeys;
    float l = buffers.operand<float>(6)[at];
    if (!tile.mask(row, key, count, z, -std::numeric_limits<float>::infinity()) || l == 0) {
      std::fill_n(z, count, 0.0f);
      return;
    }
    vectors().scaledExp(z, z, count, buffers.operand<float>(5)[at], 1 / l, 0);
  }

  const Prepared &prepared;
  const Buffers &buffers;
  std::vector<float> slopes, rowSums;
  int64_t sample = 0, head = 0, first = 0, rows = 0;
};

class Backward {
public:
  Backward(const Prepared &prepared, const Buffers &buffers)
      : prepared(prepared), buffers(buffers), gradient(prepared, buffers),
        pOperand(prepared.dtype, tileQueries * tileKeys),
        dsOperand(prepared.dtype, tileQueries * tileKeys) {}

  /// Processes all queries that read the keys of one head.
  void run(int64_t sample, int64_t keyHead) {
    const Sizes &sizes = prepared.sizes;
    int64_t group = sizes.heads / sizes.keyHeads;
    dk.assign(size_t(sizes.keys * sizes.width), 0);
    dv.assign(size_t(sizes.keys * sizes.valueWidth), 0);
    for (int64_t first = 0; first < sizes.queries; first += tileQueries) {
      int64_t rows = std::min(tileQueries, sizes.queries - first);
      AttentionTile tile(prepared.masking, buffers, sample, first, rows);
      for (int64_t head = keyHead * group; head < (keyHead + 1) * group; ++head)
        runHead(tile, sample, head, first, rows);
    }
    write(1, prepared.layouts.k, sample, keyHead, 0, dk);
    write(2, prepared.layouts.v, sample, keyHead, 0, dv);
  }

private:
  /// Writes the rows of a head from token `first` on.
  void write(size_t result, const HeadLayout &layout, int64_t sample, int64_t head, int64_t first,
             const std::vector<float> &values) {
    FloatsOut out(buffers.results[result], prepared.dtype);
    const int64_t width = layout.width, rows = int64_t(values.size()) / width;
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.data() + row * width, width,
                  out.at(layout.offset(sample, head, first + row), width));
      out.finish();
    }
  }

  void runHead(AttentionTile &tile, int64_t sample, int64_t head, int64_t first, int64_t rows) {
    const Sizes &sizes = prepared.sizes;
    const Layouts &layouts = prepared.layouts;
    int64_t d = sizes.width, e = sizes.valueWidth, width = prepared.width();
    int64_t betweenKeys = layouts.k.tokenStride();
    GradientTile &g = gradient;
    g.begin(sample, head, first, rows);
    dq.assign(size_t(rows * d), 0);
    for (int64_t key = tile.firstKey(); key < tile.endKey(); key += tileKeys) {
      int64_t count = std::min(tileKeys, tile.endKey() - key);
      g.compute(tile, key, count, prepared.scale);
      g.multiplySlopes(count);
      const void *dsTile = dsOperand.of(g.ds.data(), rows, count, tileKeys);
      MatmulShape shape = shapeOf(rows, d, count, tileKeys, betweenKeys, d);
      shape.accumulates = true;
      multiply(shape, prepared.dtype, dsTile, g.k + key * betweenKeys * width, dq.data());
      shape = shapeOf(count, d, rows, tileKeys, layouts.q.tokenStride(), d);
      shape.transposedA = shape.accumulates = true;
      multiply(shape, prepared.dtype, dsTile, g.q, dk.data() + key * d);
      tile.drop(head, key, count, g.p.data());
      shape = shapeOf(count, e, rows, tileKeys, layouts.o.tokenStride(), e);
      shape.transposedA = shape.accumulates = true;
      multiply(shape, prepared.dtype, pOperand.of(g.p.data(), rows, count, tileKeys), g.dout,
               dv.data() + key * e);
    }
    write(0, layouts.q, sample, head, first, dq);
  }

  const Prepared &prepared;
  const Buffers &buffers;
  GradientTile gradient;
  std::vector<float> dq, dk, dv;
  TileOperand pOperand, dsOperand;
};

/// Adds the gradients of a head's scores to those of a bias, in `total`.
void addBiasGradient(const Prepared &prepared, const Buffers &buffers,
                     const kernels::BiasLayout &layout, int64_t sample, int64_t head,
                     float *total) {
  const Sizes &sizes = prepared.sizes;
  GradientTile gradient(prepared, buffers);
  for (int64_t first = 0; first < sizes.queries; first += tileQueries) {
    int64_t rows = std::min(tileQueries, sizes.queries - first);
    AttentionTile tile(prepared.masking, buffers, sample, first, rows);
    gradient.begin(sample, head, first, rows);
    for (int64_t key = tile.firstKey(); key < tile.endKey(); key += tileKeys) {
      int64_t count = std::min(tileKeys, tile.endKey() - key);
      gradient.compute(tile, key, count, 1);
      for (int64_t row = 0; row < rows; ++row) {
        const auto &s = layout.strides;
        float *to = total + sample * s[0] + head * s[1] + (first + row) * s[2] + key * s[3];
        const float *from = gradient.ds.data() + row * tileKeys;
        for (int64_t j = 0; j < count; ++j)
          to[j * s[3]] += from[j];
      }
    }
  }
}

/// Pieces of work share no element: a piece is a sample, a head or both, as far as the bias has
/// them.
NativeKernel attentionBiasGrad(const Prepared &prepared, size_t bias, DType result) {
  return [prepared, bias, result](Threads &threads, const Buffers &buffers) {
    const Sizes &sizes = prepared.sizes;
    const kernels::BiasLayout &layout = prepared.terms.biases[bias].layout;
    bool hasSamples = layout.strides[0] != 0, hasHeads = layout.strides[1] != 0;
    int64_t samples = hasSamples ? sizes.batch : 1, heads = hasHeads ? sizes.heads : 1;
    int64_t elements = kernels::numElements(layout.shape);
    std::vector<float> total(size_t(elements), 0.0f);
    threads.run(samples * heads, [&](int64_t piece) {
      for (int64_t b = 0; b < sizes.batch / samples; ++b)
        for (int64_t h = 0; h < sizes.heads / heads; ++h)
          addBiasGradient(prepared, buffers, layout, hasSamples ? piece / heads : b,
                          hasHeads ? piece % heads : h, total.data());
    });
    FloatsOut out(buffers.results[0], result);
    std::copy(total.begin(), total.end(), out.at(0, elements));
    out.finish();
  };
}

NativeKernel attentionGrad(const Prepared &prepared) {
  return [prepared](Threads &threads, const Buffers &buffers) {
    threads.run(prepared.sizes.batch * prepared.sizes.keyHeads, [&](int64_t piece) {
      Backward(prepared, buffers)
          .run(piece / prepared.sizes.keyHeads, piece % prepared.sizes.keyHeads);
    });
  };
}

//===----------------------------------------------------------------------===//
// Merging
//===----------------------------------------------------------------------===//

NativeKernel attentionMerge(const Attrs &attrs, const Types &operands) {
  DType dtype = operands[0].dtype;
  HeadLayout layout = kernels::layoutOfMerge(attrs, operands[0].shape, operands[1].shape);
  int64_t width = layout.width, rows = kernels::numElements(operands[1].shape);
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(rows, rowsPerPiece(width), [&](int64_t begin, int64_t end) {
      FloatsIn o1(buffers.operands[0], dtype), o2(buffers.operands[3], dtype);
      FloatsOut o(buffers.results[0], dtype);
      for (int64_t row = begin; row < end; ++row) {
        float m1 = buffers.operand<float>(1)[row], l1 = buffers.operand<float>(2)[row];
        float m2 = buffers.operand<float>(4)[row], l2 = buffers.operand<float>(5)[row];
        float m = l1 == 0 ? m2 : l2 == 0 ? m1 : std::max(m1, m2);
        float part1 = l1 == 0 ? 0 : l1 * std::exp(m1 - m),
              part2 = l2 == 0 ? 0 : l2 * std::exp(m2 - m);
        float l = part1 + part2;
        int64_t head = row / layout.tokens;
        int64_t at = layout.offset(head / layout.heads, head % layout.heads, row % layout.tokens);
        float *out = o.at(at, width);
        bool isAny = l != 0;
        std::copy_n(o1.at(at, width), width, out);
        vectors().scale(out, width, isAny ? part1 / l : 0);
        vectors().addScaled(o2.at(at, width), out, width, isAny ? part2 / l : 1);
        o.finish();
        buffers.result<float>(1)[row] = m;
        buffers.result<float>(2)[row] = l;
      }
    });
  };
}

/// Whether `data` have one type with matmuls on this CPU, and `statistics` are f32.
bool isSupported(const Types &types, std::initializer_list<size_t> data,
                 std::initializer_list<size_t> statistics) {
  DType dtype = types[*data.begin()].dtype;
  if (!isNativeFloat(dtype))
    return false;
  for (size_t i : data)
    if (types[i].dtype != dtype || kernels::numElements(types[i].shape) == 0)
      return false;
  for (size_t i : statistics)
    if (types[i].dtype != DType::F32)
      return false;
  MatmulShape probe = shapeOf(16, 16, 16, 16, 16, 16);
  probe.input = dtype;
  return Matmul::find(probe) != nullptr;
}

} // namespace

NativeKernel makeAttention(std::string_view op, const Attrs &attrs, const Types &operands,
                           const Types &results) {
  auto prepare = [&](size_t q) {
    Layouts layouts(attrs, operands[q].shape, operands[q + 1].shape, operands[q + 2].shape);
    Sizes sizes(layouts);
    size_t first = op == "attention" ? 3 : 7;
    size_t firstMask = first + kernels::numScoreOperands(attrs);
    return Prepared{layouts,
                    sizes,
                    AttentionMasking(attrs, operands, firstMask, sizes.queries, sizes.keys),
                    ScoreTerms(attrs, operands, first, sizes),
                    operands[q].dtype,
                    float(attrs.getDouble("scale"))};
  };
  if (op == "attention" && isSupported(operands, {0, 1, 2}, {}) &&
      isSupported(results, {0}, {1, 2}) && results[0].dtype == operands[0].dtype) {
    Prepared prepared = prepare(0);
    return prepared.isSupported() ? attention(prepared) : nullptr;
  }
  bool isGrad = op == "attention_grad" || op == "attention_bias_grad";
  if (isGrad && isSupported(operands, {0, 1, 2, 3, 4}, {5, 6})) {
    Prepared prepared = prepare(1);
    if (!prepared.isSupported())
      return nullptr;
    if (op == "attention_bias_grad")
      return isNativeFloat(results[0].dtype)
                 ? attentionBiasGrad(prepared, size_t(attrs.getInt("bias")), results[0].dtype)
                 : nullptr;
    if (isSupported(results, {0, 1, 2}, {}) && results[0].dtype == operands[1].dtype)
      return attentionGrad(prepared);
  }
  if (op == "attention_merge" && isSupported(operands, {0, 3}, {1, 2, 4, 5}) &&
      isSupported(results, {0}, {1, 2}) && results[0].dtype == operands[0].dtype)
    return attentionMerge(attrs, operands);
  return nullptr;
}

} // namespace tbc::cpu

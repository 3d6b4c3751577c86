//===- Experts.cpp - Native kernels of a mixture of experts --------------------===//
//
// The rows of an expert are its tokens, in token order. Experts follow each other, a group at a
// time, so intermediate values are kept for a few thousand rows only. Each piece of work is a tile
// of the rows, or of a matrix, of one expert. The sums of a token are in the order of the experts.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/kernels/Support.h"

#include <string>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;

namespace {

constexpr int64_t tileRows = 64;
constexpr int64_t tileOfMatrix = 256;
constexpr int64_t columnsPerPiece = 256;
/// Rows kept at once; a single expert may have more.
constexpr int64_t rowsAtOnce = 2048;

bool areF32(const Types &types) {
  return std::all_of(types.begin(), types.end(),
                     [](const TensorType &type) { return type.dtype == DType::F32; });
}

/// c[m x n] = a[m x k] * b[k x n]; the columns of a transposed operand are dense.
void multiply(int64_t m, int64_t n, int64_t k, const float *a, bool transposedA, int64_t strideA,
              const float *b, bool transposedB, int64_t strideB, float *c) {
  MatmulShape shape;
  shape.m = m, shape.n = n, shape.k = k;
  shape.strideA = strideA, shape.strideB = strideB, shape.strideC = n;
  shape.transposedA = transposedA, shape.transposedB = transposedB;
  multiplyOnce(shape, a, b, c);
}

/// The sizes of routed_experts; `gradient` is null in the forward.
struct Layer {
  int64_t t, h, e, f, o;
  bool isGated;
  ElementLoop activate, gradient;

  int64_t width() const { return isGated ? 2 * f : f; }
};

/// A token of an expert, with its weight.
struct Row {
  int64_t token, expert;
  float weight;
};

/// Rows [begin, end) of one expert.
struct Tile {
  int64_t expert, begin, end;
  int64_t size() const { return end - begin; }
};

/// All rows, expert by expert, and the first row of each expert.
struct Routes {
  std::vector<Row> rows;
  std::vector<int64_t> begins;

  Routes(const Layer &layer, const float *weights) {
    for (int64_t expert = 0; expert < layer.e; ++expert) {
      begins.push_back(int64_t(rows.size()));
      for (int64_t token = 0; token < layer.t; ++token)
        if (float weight = weights[token * layer.e + expert]; weight != 0)
          rows.push_back({token, expert, weight});
    }
    begins.push_back(int64_t(rows.size()));
  }

  int64_t numRows(int64_t first, int64_t last) const {
    return begins[size_t(last)] - begins[size_t(first)];
  }
  /// Returns the end of the group of experts that begins at `first`.
  int64_t lastOf(int64_t first) const {
    auto last = first + 1;
    while (last + 1 < int64_t(begins.size()) && numRows(first, last + 1) <= rowsAtOnce)
      ++last;
    return last;
  }
  std::vector<Tile> tiles(int64_t first, int64_t last) const {
    std::vector<Tile> list;
    for (int64_t expert = first; expert < last; ++expert)
      for (int64_t row = begins[size_t(expert)]; row < begins[size_t(expert) + 1]; row += tileRows)
        list.push_back({expert, row, std::min(begins[size_t(expert) + 1], row + tileRows)});
    return list;
  }
};

/// The intermediate values of a tile of rows.
struct Activations {
  std::vector<float> gate, up, activated, inner;

  /// `x`: the rows; `in`: the expert's first matrix.
  Activations(const Layer &layer, int64_t rows, const float *x, const float *in) {
    auto size = size_t(rows * layer.f);
    gate.resize(size), activated.resize(size);
    multiply(rows, layer.f, layer.h, x, false, layer.h, in, true, layer.h, gate.data());
    const float *from = gate.data();
    float *to = activated.data();
    layer.activate(&from, &to, int64_t(size), nullptr);
    if (!layer.isGated)
      return;
    up.resize(size), inner.resize(size);
    multiply(rows, layer.f, layer.h, x, false, layer.h, in + layer.f * layer.h, true, layer.h,
             up.data());
    for (size_t i = 0; i < size; ++i)
      inner[i] = activated[i] * up[i];
  }

  const std::vector<float> &result() const { return up.empty() ? activated : inner; }
};

void gather(const std::vector<Row> &rows, const Tile &tile, const float *matrix, int64_t width,
            float *to) {
  for (int64_t row = tile.begin; row < tile.end; ++row, to += width)
    std::copy_n(matrix + rows[size_t(row)].token * width, width, to);
}

/// Computes to[token] += factor(row) * from[row] for rows [begin, end), in pieces of columns.
template <typename Fn>
void addRows(Threads &threads, const std::vector<Row> &rows, int64_t begin, int64_t end,
             const float *from, int64_t width, float *to, Fn factor) {
  threads.runRanges(width, columnsPerPiece, [&](int64_t first, int64_t last) {
    for (int64_t row = begin; row < end; ++row)
      vectors().addScaled(from + (row - begin) * width + first,
                          to + rows[size_t(row)].token * width + first, last - first,
                          factor(rows[size_t(row)]));
  });
}

NativeKernel routedExperts(const Layer &layer) {
  return [layer](Threads &threads, const Buffers &buffers) {
    const float *x = buffers.operand<float>(0), *in = buffers.operand<float>(2);
    const float *out = buffers.operand<float>(3);
    auto *y = buffers.result<float>(0);
    std::fill_n(y, layer.t * layer.o, 0.0f);
    Routes routes(layer, buffers.operand<float>(1));
    for (int64_t first = 0, last; first < layer.e; first = last) {
      last = routes.lastOf(first);
      int64_t begin = routes.begins[size_t(first)], end = routes.begins[size_t(last)];
      auto *ys = reinterpret_cast<float *>(
          threads.sharedScratch(size_t((end - begin) * layer.o) * sizeof(float)));
      std::vector<Tile> tiles = routes.tiles(first, last);
      threads.run(int64_t(tiles.size()), [&](int64_t piece) {
        const Tile &tile = tiles[size_t(piece)];
        std::vector<float> xs(size_t(tile.size() * layer.h));
        gather(routes.rows, tile, x, layer.h, xs.data());
        Activations made(layer, tile.size(), xs.data(), in + tile.expert * layer.width() * layer.h);
        multiply(tile.size(), layer.o, layer.f, made.result().data(), false, layer.f,
                 out + tile.expert * layer.o * layer.f, true, layer.f,
                 ys + (tile.begin - begin) * layer.o);
      });
      addRows(threads, routes.rows, begin, end, ys, layer.o, y,
              [](const Row &row) { return row.weight; });
    }
  };
}

/// Computes the gradients; keeps the intermediate values of a group of experts.
class Gradients {
public:
  Gradients(const Layer &layer, const Buffers &buffers)
      : layer(layer), dy(buffers.operand<float>(0)), x(buffers.operand<float>(1)),
        in(buffers.operand<float>(3)), out(buffers.operand<float>(4)), dx(buffers.result<float>(0)),
        dw(buffers.result<float>(1)), din(buffers.result<float>(2)), dout(buffers.result<float>(3)),
        routes(layer, buffers.operand<float>(2)) {}

  void run(Threads &threads) {
    std::fill_n(dx, layer.t * layer.h, 0.0f);
    std::fill_n(dw, layer.t * layer.e, 0.0f);
    for (int64_t first = 0, last; first < layer.e; first = last) {
      last = routes.lastOf(first);
      begin = routes.begins[size_t(first)];
      int64_t end = routes.begins[size_t(last)], count = end - begin;
      auto *memory = reinterpret_cast<float *>(threads.sharedScratch(
          size_t(count * (2 * layer.h + layer.o + layer.f + layer.width())) * sizeof(float)));
      xs = memory, dxs = xs + count * layer.h, dys = dxs + count * layer.h;
      inners = dys + count * layer.o, dfirsts = inners + count * layer.f;
      std::vector<Tile> tiles = routes.tiles(first, last);
      threads.run(int64_t(tiles.size()), [&](int64_t piece) { rowsOf(tiles[size_t(piece)]); });
      addRows(threads, routes.rows, begin, end, dxs, layer.h, dx, [](const Row &) { return 1.0f; });
      matrices(threads, first, last);
    }
  }

private:
  void rowsOf(const Tile &tile) {
    int64_t at = tile.begin - begin, rows = tile.size(), f = layer.f, width = layer.width();
    gather(routes.rows, tile, x, layer.h, xs + at * layer.h);
    gather(routes.rows, tile, dy, layer.o, dys + at * layer.o);
    const float *expertIn = in + tile.expert * width * layer.h;
    Activations made(layer, rows, xs + at * layer.h, expertIn);
    const std::vector<float> &inner = made.result();
    std::vector<float> dInner(inner.size()), ofGate(inner.size());
    multiply(rows, f, layer.o, dys + at * layer.o, false, layer.o, out + tile.expert * layer.o * f,
             false, f, dInner.data());
    for (int64_t i = 0; i < rows; ++i) {
      const Row &row = routes.rows[size_t(tile.begin + i)];
      dw[row.token * layer.e + tile.expert] =
          vectors().dot(inner.data() + i * f, dInner.data() + i * f, f);
      std::copy_n(inner.data() + i * f, f, inners + (at + i) * f);
      vectors().scale(inners + (at + i) * f, f, row.weight);
      vectors().scale(dInner.data() + i * f, f, row.weight);
    }
    std::copy(dInner.begin(), dInner.end(), ofGate.begin());
    if (layer.isGated)
      for (size_t i = 0; i < ofGate.size(); ++i)
        ofGate[i] *= made.up[i];
    for (int64_t i = 0; i < rows; ++i) {
      float *dfirst = dfirsts + (at + i) * width;
      const float *from[] = {made.gate.data() + i * f, ofGate.data() + i * f};
      layer.gradient(from, &dfirst, f, nullptr);
      if (layer.isGated)
        for (int64_t j = 0; j < f; ++j)
          dfirst[f + j] = dInner[size_t(i * f + j)] * made.activated[size_t(i * f + j)];
    }
    multiply(rows, layer.h, width, dfirsts + at * width, false, width, expertIn, false, layer.h,
             dxs + at * layer.h);
  }

  /// Computes the gradients of the matrices, by tiles of their rows.
  void matrices(Threads &threads, int64_t first, int64_t last) {
    int64_t width = layer.width();
    int64_t tilesIn = (width + tileOfMatrix - 1) / tileOfMatrix;
    int64_t tilesOut = (layer.o + tileOfMatrix - 1) / tileOfMatrix, each = tilesIn + tilesOut;
    threads.run((last - first) * each, [&](int64_t piece) {
      int64_t expert = first + piece / each, tile = piece % each;
      int64_t at = routes.begins[size_t(expert)] - begin, rows = routes.numRows(expert, expert + 1);
      if (tile < tilesIn)
        product(rows, tile, dfirsts + at * width, width, xs + at * layer.h, layer.h,
                din + expert * width * layer.h);
      else
        product(rows, tile - tilesIn, dys + at * layer.o, layer.o, inners + at * layer.f, layer.f,
                dout + expert * layer.o * layer.f);
    });
  }

  /// Computes a tile of the rows of left^T * right.
  static void product(int64_t rows, int64_t tile, const float *left, int64_t leftWidth,
                      const float *right, int64_t rightWidth, float *result) {
    int64_t first = tile * tileOfMatrix, count = std::min(leftWidth - first, tileOfMatrix);
    result += first * rightWidth;
    if (rows == 0)
      std::fill_n(result, count * rightWidth, 0.0f);
    else
      multiply(count, rightWidth, rows, left + first, true, leftWidth, right, false, rightWidth,
               result);
  }

  const Layer &layer;
  const float *dy, *x, *in, *out;
  float *dx, *dw, *din, *dout;
  Routes routes;
  int64_t begin = 0; // the first row kept
  float *xs = nullptr, *dxs = nullptr, *dys = nullptr, *inners = nullptr, *dfirsts = nullptr;
};

NativeKernel routed(std::string_view op, const Attrs &attrs, const Types &operands) {
  bool isGradient = op == "routed_experts_grad";
  size_t shift = isGradient ? 1 : 0;
  const Shape &x = operands[shift].shape, &out = operands[shift + 3].shape;
  if (x.size() != 2 || out.size() != 3)
    return nullptr;
  Layer layer{x[0], x[1], out[0], out[2], out[1], attrs.getBool("gated"), nullptr, nullptr};
  if (operands[shift + 1].shape != Shape{layer.t, layer.e} ||
      operands[shift + 2].shape != Shape{layer.e, layer.width(), layer.h} || layer.h == 0 ||
      layer.f == 0 || layer.o == 0)
    return nullptr;
  std::string activation = attrs.getString("activation"), suffix;
  if (activation == "gelu" || activation == "gelu_tanh") {
    suffix = activation == "gelu" ? "_none" : "_tanh";
    activation = "gelu";
  }
  const NamedLoop *forward = findElementLoop(activation + suffix);
  const NamedLoop *backward = findElementLoop(activation + "_grad" + suffix);
  if (!forward || !backward)
    return nullptr;
  layer.activate = forward->loop, layer.gradient = backward->loop;
  if (!isGradient)
    return routedExperts(layer);
  return
      [layer](Threads &threads, const Buffers &buffers) { Gradients(layer, buffers).run(threads); };
}

/// The assignment of tokens to slots: the tokens of a group in order, until an expert has no slot
/// left.
struct Deal {
  int64_t g, t, e, c, h;

  struct Entry {
    int64_t weight, token, slot; // indices of the weight, of the token's row and of the slot's row
  };
  /// Returns the entries in the order of the tokens.
  std::vector<Entry> entries(const float *weights) const {
    std::vector<Entry> list;
    std::vector<int64_t> used(static_cast<size_t>(e));
    for (int64_t group = 0; group < g; ++group) {
      std::fill(used.begin(), used.end(), 0);
      for (int64_t token = group * t; token < (group + 1) * t; ++token)
        for (int64_t expert = 0; expert < e; ++expert)
          if (weights[token * e + expert] != 0 && used[size_t(expert)] < c)
            list.push_back(
                {token * e + expert, token, (group * e + expert) * c + used[size_t(expert)]++});
    }
    return list;
  }
};

NativeKernel dispatchTokens(const Deal &deal, bool isWeighted) {
  return [=](Threads &threads, const Buffers &buffers) {
    const float *x = buffers.operand<float>(0), *weights = buffers.operand<float>(1);
    auto *slots = buffers.result<float>(0);
    std::vector<int64_t> tokens(size_t(deal.g * deal.e * deal.c), -1);
    std::vector<float> factors(tokens.size(), 1);
    for (const Deal::Entry &entry : deal.entries(weights)) {
      tokens[size_t(entry.slot)] = entry.token;
      factors[size_t(entry.slot)] = isWeighted ? weights[entry.weight] : 1;
    }
    threads.runRanges(int64_t(tokens.size()), rowsPerPiece(deal.h),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t slot = begin; slot < end; ++slot) {
                          float *to = slots + slot * deal.h;
                          if (tokens[size_t(slot)] < 0) {
                            std::fill_n(to, deal.h, 0.0f);
                            continue;
                          }
                          std::copy_n(x + tokens[size_t(slot)] * deal.h, deal.h, to);
                          if (isWeighted)
                            vectors().scale(to, deal.h, factors[size_t(slot)]);
                        }
                      });
  };
}

NativeKernel combineSlots(const Deal &deal, bool isWeighted) {
  return [=](Threads &threads, const Buffers &buffers) {
    const float *slots = buffers.operand<float>(0), *weights = buffers.operand<float>(1);
    auto *y = buffers.result<float>(0);
    std::vector<Deal::Entry> entries = deal.entries(weights);
    threads.runRanges(deal.g * deal.t, rowsPerPiece(deal.h), [&](int64_t begin, int64_t end) {
      std::fill_n(y + begin * deal.h, (end - begin) * deal.h, 0.0f);
      auto next = std::lower_bound(
          entries.begin(), entries.end(), begin,
          [](const Deal::Entry &entry, int64_t token) { return entry.token < token; });
      for (; next != entries.end() && next->token < end; ++next)
        vectors().addScaled(slots + next->slot * deal.h, y + next->token * deal.h, deal.h,
                            isWeighted ? weights[next->weight] : 1);
    });
  };
}

NativeKernel combineWeightsGrad(const Deal &deal) {
  return [=](Threads &threads, const Buffers &buffers) {
    const float *dy = buffers.operand<float>(0), *slots = buffers.operand<float>(1);
    auto *dw = buffers.result<float>(0);
    std::fill_n(dw, deal.g * deal.t * deal.e, 0.0f);
    std::vector<Deal::Entry> entries = deal.entries(buffers.operand<float>(2));
    threads.runRanges(
        int64_t(entries.size()), rowsPerPiece(deal.h), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const Deal::Entry &entry = entries[size_t(i)];
            dw[entry.weight] =
                vectors().dot(dy + entry.token * deal.h, slots + entry.slot * deal.h, deal.h);
          }
        });
  };
}

NativeKernel dealt(std::string_view op, const Attrs &attrs, const Types &operands,
                   const Types &results) {
  const Shape &tokens = op == "combine" ? results[0].shape : operands[0].shape;
  const Shape &slots = op == "dispatch"  ? results[0].shape
                       : op == "combine" ? operands[0].shape
                                         : operands[1].shape;
  const Shape &weights = operands.back().shape;
  if (weights.size() != 3 || slots.size() != 4)
    return nullptr;
  Deal deal{weights[0], weights[1], weights[2], slots[2], slots[3]};
  if (slots != Shape{deal.g, deal.e, deal.c, deal.h} || tokens != Shape{deal.g, deal.t, deal.h})
    return nullptr;
  if (op == "dispatch")
    return attrs.getInt("capacity") == deal.c ? dispatchTokens(deal, attrs.getBool("weighted"))
                                              : nullptr;
  if (op == "combine")
    return combineSlots(deal, attrs.getBool("weighted"));
  return combineWeightsGrad(deal);
}

} // namespace

NativeKernel makeExperts(std::string_view op, const Attrs &attrs, const Types &operands,
                         const Types &results) {
  if (!areF32(operands) || !areF32(results))
    return nullptr;
  if ((op == "routed_experts" && operands.size() == 4) ||
      (op == "routed_experts_grad" && operands.size() == 5))
    return routed(op, attrs, operands);
  if ((op == "dispatch" && operands.size() == 2) || (op == "combine" && operands.size() == 2) ||
      (op == "combine_weights_grad" && operands.size() == 3))
    return dealt(op, attrs, operands, results);
  return nullptr;
}

} // namespace tbc::cpu

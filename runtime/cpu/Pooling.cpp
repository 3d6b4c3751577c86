//===- Pooling.cpp - Native pooling and its gradients ---------------------------===//
//
// Threads share planes (one channel of one sample). In a plane, rows of the result are computed tap
// by tap, so the inner loop runs along the row. Taps have the order of the reference kernel, so
// ties and NaN give the same result.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/kernels/Support.h"

#include <array>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;

namespace {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Windows along one spatial dim: tap t at position p reads p * stride + t * dilation - low.
/// Example: stride 2, low 1: tap 0 at position 3 reads 5.
struct Dim {
  int64_t input = 1, output = 1, taps = 1, stride = 1, dilation = 1, low = 0;

  int64_t at(int64_t position, int64_t tap) const {
    return position * stride + tap * dilation - low;
  }
  /// Returns the taps at a position that read inside the input.
  Range tapsAt(int64_t position) const {
    Range range;
    while (range.begin < taps && at(position, range.begin) < 0)
      ++range.begin;
    range.end = range.begin;
    while (range.end < taps && at(position, range.end) < input)
      ++range.end;
    return range;
  }
  /// Returns the positions at which a tap reads inside the input.
  Range positionsOf(int64_t tap) const {
    Range range;
    while (range.begin < output && at(range.begin, tap) < 0)
      ++range.begin;
    range.end = range.begin;
    while (range.end < output && at(range.end, tap) < input)
      ++range.end;
    return range;
  }
};

/// Windows over planes of up to three dims; missing dims have size 1.
class Planes {
public:
  /// Sets the windows. Returns false if a window would be empty or shapes do not fit; the reference
  /// kernel then runs.
  bool set(const Attrs &attrs, const TensorType &x, const TensorType &y) {
    size_t rank = x.shape.size();
    if (rank < 3 || rank > 5 || y.shape.size() != rank || x.shape[0] != y.shape[0] ||
        x.shape[1] != y.shape[1])
      return false;
    size_t numDims = rank - 2;
    const std::vector<int64_t> &kernel = attrs.getInts("kernel"), &pads = attrs.getInts("pads");
    const std::vector<int64_t> &strides = attrs.getInts("strides");
    std::vector<int64_t> dilations(numDims, 1);
    if (attrs.has("dilations"))
      dilations = attrs.getInts("dilations");
    if (kernel.size() != numDims || strides.size() != numDims || dilations.size() != numDims ||
        pads.size() != 2 * numDims)
      return false;
    count = x.shape[0] * x.shape[1];
    for (size_t d = 0; d < numDims; ++d) {
      Dim &dim = dims[3 - numDims + d];
      dim = {x.shape[d + 2], y.shape[d + 2], kernel[d], strides[d], dilations[d], pads[d]};
      if (dim.stride < 1 || dim.dilation < 1 || dim.taps < 1)
        return false;
      int64_t padded = dim.input + pads[d] + pads[numDims + d];
      int64_t window = dim.dilation * (dim.taps - 1) + 1;
      if (window > padded || (padded - window) / dim.stride + 1 != dim.output)
        return false;
    }
    // The dims of a plane are independent, and so are the taps along them.
    for (size_t d = 0; d < 3; ++d)
      for (int64_t position = 0; position < dims[d].output; ++position) {
        tapRanges[d].push_back(dims[d].tapsAt(position));
        if (tapRanges[d].back().size() == 0)
          return false;
      }
    for (int64_t tap = 0; tap < dims[2].taps; ++tap)
      columns.push_back(dims[2].positionsOf(tap));
    return true;
  }

  int64_t inputs() const { return dims[0].input * dims[1].input * dims[2].input; }
  int64_t outputs() const { return dims[0].output * dims[1].output * dims[2].output; }
  int64_t taps() const { return dims[0].taps * dims[1].taps * dims[2].taps; }
  int64_t width() const { return dims[2].output; }

  /// Calls body(first plane, last plane) on the threads.
  template <typename Fn> void run(Threads &threads, Fn body) const {
    int64_t work = std::max<int64_t>(1, outputs() * taps());
    threads.runRanges(count, std::max<int64_t>(1, pieceBytes / 4 / work), body);
  }

  /// A row of the result.
  struct Row {
    int64_t at;         // its first element in the plane of the result
    int64_t first;      // the row of the plane that its first taps read
    int64_t numOutside; // taps of the other dims inside the input
  };

  /// For each row of the result: begin(row), then tap(row of the plane, positions, column of the
  /// first position, step) for every tap, then end(row).
  template <typename Begin, typename Tap, typename End>
  void forRows(Begin begin, Tap tap, End end) const {
    const Dim &depth = dims[0], &height = dims[1], &width = dims[2];
    for (int64_t d = 0; d < depth.output; ++d)
      for (int64_t h = 0; h < height.output; ++h) {
        Range outer = tapRanges[0][size_t(d)], middle = tapRanges[1][size_t(h)];
        auto rowAt = [&](int64_t i, int64_t j) {
          return (depth.at(d, i) * height.input + height.at(h, j)) * width.input;
        };
        Row row{(d * height.output + h) * width.output, rowAt(outer.begin, middle.begin),
                outer.size() * middle.size()};
        begin(row);
        for (int64_t i = outer.begin; i < outer.end; ++i)
          for (int64_t j = middle.begin; j < middle.end; ++j)
            for (int64_t k = 0; k < width.taps; ++k)
              if (Range range = columns[size_t(k)]; range.size() > 0)
                tap(rowAt(i, j), range, width.at(range.begin, k), width.stride);
        end(row);
      }
  }

  /// The column read by the first tap of a position, and the number of its taps.
  int64_t firstColumn(int64_t position) const {
    return dims[2].at(position, tapRanges[2][size_t(position)].begin);
  }
  int64_t numColumns(int64_t position) const { return tapRanges[2][size_t(position)].size(); }

private:
  int64_t count = 0;
  std::array<Dim, 3> dims;
  std::array<std::vector<Range>, 3> tapRanges; // by position
  std::vector<Range> columns;                  // by tap along the last dim
};

NativeKernel maxPool(const Planes &planes) {
  return [planes](Threads &threads, const Buffers &buffers) {
    planes.run(threads, [&](int64_t first, int64_t last) {
      for (int64_t plane = first; plane < last; ++plane) {
        const float *x = buffers.operand<float>(0) + plane * planes.inputs();
        float *y = buffers.result<float>(0) + plane * planes.outputs();
        float *out = nullptr;
        planes.forRows(
            [&](const Planes::Row &row) {
              out = y + row.at;
              for (int64_t p = 0; p < planes.width(); ++p)
                out[p] = x[row.first + planes.firstColumn(p)];
            },
            [&](int64_t from, Range range, int64_t column, int64_t step) {
              const float *in = x + from + column;
              for (int64_t p = range.begin; p < range.end; ++p, in += step)
                out[p] = out[p] < *in || *in != *in ? *in : out[p]; // NaN stays
            },
            [](const Planes::Row &) {});
      }
    });
  };
}

NativeKernel maxPoolGrad(const Planes &planes) {
  return [planes](Threads &threads, const Buffers &buffers) {
    planes.run(threads, [&](int64_t first, int64_t last) {
      std::vector<float> largest(size_t(planes.width()));
      std::vector<int64_t> places(size_t(planes.width()));
      for (int64_t plane = first; plane < last; ++plane) {
        const float *x = buffers.operand<float>(0) + plane * planes.inputs();
        const float *dy = buffers.operand<float>(1) + plane * planes.outputs();
        float *dx = buffers.result<float>(0) + plane * planes.inputs();
        std::fill_n(dx, planes.inputs(), 0.0f);
        planes.forRows(
            [&](const Planes::Row &row) {
              for (int64_t p = 0; p < planes.width(); ++p) {
                places[size_t(p)] = row.first + planes.firstColumn(p);
                largest[size_t(p)] = x[places[size_t(p)]];
              }
            },
            [&](int64_t from, Range range, int64_t column, int64_t step) {
              int64_t place = from + column;
              for (int64_t p = range.begin; p < range.end; ++p, place += step) {
                bool isLarger = largest[size_t(p)] < x[place] || x[place] != x[place];
                largest[size_t(p)] = isLarger ? x[place] : largest[size_t(p)];
                places[size_t(p)] = isLarger ? place : places[size_t(p)];
              }
            },
            [&](const Planes::Row &row) {
              for (int64_t p = 0; p < planes.width(); ++p)
                dx[places[size_t(p)]] += dy[row.at + p];
            });
      }
    });
  };
}

/// Returns the divisor of the sum of a window.
float divisor(const Planes &planes, bool countsPads, const Planes::Row &row, int64_t position) {
  return float(countsPads ? planes.taps() : row.numOutside * planes.numColumns(position));
}

NativeKernel avgPool(const Planes &planes, bool countsPads) {
  return [=](Threads &threads, const Buffers &buffers) {
    planes.run(threads, [&](int64_t first, int64_t last) {
      for (int64_t plane = first; plane < last; ++plane) {
        const float *x = buffers.operand<float>(0) + plane * planes.inputs();
        float *y = buffers.result<float>(0) + plane * planes.outputs();
        float *out = nullptr;
        planes.forRows(
            [&](const Planes::Row &row) {
              out = y + row.at;
              std::fill_n(out, planes.width(), 0.0f);
            },
            [&](int64_t from, Range range, int64_t column, int64_t step) {
              const float *in = x + from + column;
              for (int64_t p = range.begin; p < range.end; ++p, in += step)
                out[p] += *in;
            },
            [&](const Planes::Row &row) {
              for (int64_t p = 0; p < planes.width(); ++p)
                out[p] /= divisor(planes, countsPads, row, p);
            });
      }
    });
  };
}

NativeKernel avgPoolGrad(const Planes &planes, bool countsPads) {
  return [=](Threads &threads, const Buffers &buffers) {
    planes.run(threads, [&](int64_t first, int64_t last) {
      std::vector<float> shares(size_t(planes.width()));
      for (int64_t plane = first; plane < last; ++plane) {
        const float *dy = buffers.operand<float>(0) + plane * planes.outputs();
        float *dx = buffers.result<float>(0) + plane * planes.inputs();
        std::fill_n(dx, planes.inputs(), 0.0f);
        planes.forRows(
            [&](const Planes::Row &row) {
              for (int64_t p = 0; p < planes.width(); ++p)
                shares[size_t(p)] = dy[row.at + p] / divisor(planes, countsPads, row, p);
            },
            [&](int64_t from, Range range, int64_t column, int64_t step) {
              float *out = dx + from + column;
              for (int64_t p = range.begin; p < range.end; ++p, out += step)
                *out += shares[size_t(p)];
            },
            [](const Planes::Row &) {});
      }
    });
  };
}

} // namespace

NativeKernel makePooling(std::string_view op, const Attrs &attrs, const Types &operands,
                         const Types &results) {
  bool isMax = op == "max_pool" || op == "max_pool_grad";
  bool isGrad = op == "max_pool_grad" || op == "avg_pool_grad";
  if (!isMax && op != "avg_pool" && op != "avg_pool_grad")
    return nullptr;
  for (const Types *types : {&operands, &results})
    for (const TensorType &type : *types)
      if (type.dtype != DType::F32)
        return nullptr;
  Planes planes;
  const TensorType &x = isGrad ? results[0] : operands[0];
  const TensorType &y = isGrad ? operands.back() : results[0];
  if (!planes.set(attrs, x, y))
    return nullptr;
  if (isMax)
    return isGrad ? maxPoolGrad(planes) : maxPool(planes);
  bool countsPads = attrs.getBool("count_include_pad", false);
  return isGrad ? avgPoolGrad(planes, countsPads) : avgPool(planes, countsPads);
}

} // namespace tbc::cpu

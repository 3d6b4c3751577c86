//===- Normalization.cpp - Native layer norm and sums over dims ----------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/kernels/Support.h"

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;

namespace {

/// Columns in a piece of a sum over rows.
constexpr int64_t columnsPerPiece = 256;

struct Rows {
  int64_t count, width;
};

Rows rowsOf(const TensorType &type) {
  int64_t width = type.shape.empty() ? 1 : type.shape.back();
  return {width ? kernels::numElements(type.shape) / width : 0, width};
}

NativeKernel layerNorm(const Attrs &attrs, const Types &operands, const Types &results) {
  // Statistics are f32 for bf16 data too.
  if (results[1].dtype != DType::F32 || results[2].dtype != DType::F32)
    return nullptr;
  Rows rows = rowsOf(operands[0]);
  auto epsilon = float(attrs.getDouble("epsilon"));
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(rows.count, rowsPerPiece(rows.width), [&](int64_t begin, int64_t end) {
      FloatsIn x(buffers.operands[0], operands[0].dtype), w(buffers.operands[1], operands[1].dtype);
      FloatsIn b(buffers.operands[2], operands[2].dtype);
      FloatsOut y(buffers.results[0], results[0].dtype);
      const float *weight = w.at(0, rows.width), *bias = b.at(0, rows.width);
      for (int64_t row = begin; row < end; ++row) {
        float statistics[2];
        int64_t at = row * rows.width;
        vectors().layerNorm(x.at(at, rows.width), weight, bias, y.at(at, rows.width), statistics,
                            rows.width, epsilon);
        y.finish();
        buffers.result<float>(1)[row] = statistics[0];
        buffers.result<float>(2)[row] = statistics[1];
      }
    });
  };
}

NativeKernel layerNormGrad(const Types &operands, const Types &results) {
  if (operands[3].dtype != DType::F32 || operands[4].dtype != DType::F32)
    return nullptr;
  Rows rows = rowsOf(operands[0]);
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(rows.count, rowsPerPiece(rows.width), [&](int64_t begin, int64_t end) {
      FloatsIn dy(buffers.operands[0], operands[0].dtype);
      FloatsIn x(buffers.operands[1], operands[1].dtype), w(buffers.operands[2], operands[2].dtype);
      FloatsOut dx(buffers.results[0], results[0].dtype);
      const float *weight = w.at(0, rows.width);
      for (int64_t row = begin; row < end; ++row) {
        int64_t at = row * rows.width;
        vectors().layerNormGrad(dy.at(at, rows.width), x.at(at, rows.width), weight,
                                dx.at(at, rows.width), rows.width, buffers.operand<float>(3)[row],
                                buffers.operand<float>(4)[row]);
        dx.finish();
      }
    });
  };
}

/// Calls add(row, first column, columns, totals) for every row in order, in pieces of columns.
template <typename Fn>
void sumColumns(Threads &threads, const Rows &rows, void *result, DType dtype, Fn add) {
  threads.runRanges(rows.width, columnsPerPiece, [&](int64_t begin, int64_t end) {
    // Sums of sums: the error of many rows grows like that of the square root of their number.
    constexpr int64_t rowsPerSum = 64;
    std::vector<float> totals(size_t(end - begin), 0), part(totals.size());
    for (int64_t first = 0; first < rows.count; first += rowsPerSum) {
      std::fill(part.begin(), part.end(), 0.0f);
      for (int64_t row = first; row < std::min(rows.count, first + rowsPerSum); ++row)
        add(row, begin, end - begin, part.data());
      vectors().addScaled(part.data(), totals.data(), end - begin, 1);
    }
    FloatsOut out(result, dtype);
    std::copy(totals.begin(), totals.end(), out.at(begin, end - begin));
    out.finish();
  });
}

NativeKernel normScaleGrad(const Types &operands, const Types &results) {
  if (operands[2].dtype != DType::F32 || operands[3].dtype != DType::F32)
    return nullptr;
  Rows rows = rowsOf(operands[0]);
  return [=](Threads &threads, const Buffers &buffers) {
    sumColumns(threads, rows, buffers.results[0], results[0].dtype,
               [&](int64_t row, int64_t first, int64_t count, float *totals) {
                 FloatsIn dy(buffers.operands[0], operands[0].dtype);
                 FloatsIn x(buffers.operands[1], operands[1].dtype);
                 int64_t at = row * rows.width + first;
                 vectors().addNormScale(dy.at(at, count), x.at(at, count), totals, count,
                                        buffers.operand<float>(2)[row],
                                        buffers.operand<float>(3)[row]);
               });
  };
}

/// Sums over the last dims; each piece has some rows.
NativeKernel sumOfRows(const Rows &rows, DType from, DType to) {
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(rows.count, rowsPerPiece(rows.width), [&](int64_t begin, int64_t end) {
      constexpr int64_t chunk = 4096;
      FloatsIn x(buffers.operands[0], from);
      FloatsOut y(buffers.results[0], to);
      float *sums = y.at(begin, end - begin);
      for (int64_t row = begin; row < end; ++row) {
        double total = 0;
        for (int64_t at = 0; at < rows.width; at += chunk) {
          int64_t n = std::min(chunk, rows.width - at);
          total += double(vectors().sum(x.at(row * rows.width + at, n), n));
        }
        sums[row - begin] = float(total);
      }
      y.finish();
    });
  };
}

/// Supports sums over leading or trailing dims; others are rare.
NativeKernel reduceSum(const Attrs &attrs, const TensorType &from, const TensorType &to) {
  std::vector<int64_t> dims = attrs.getInts("dims");
  std::sort(dims.begin(), dims.end());
  size_t numDims = from.shape.size(), numReduced = dims.size();
  int64_t summed = kernels::numElements(kernels::only(from.shape, dims));
  int64_t kept = kernels::numElements(to.shape);
  bool isLeading = true, isTrailing = true;
  for (size_t i = 0; i < numReduced; ++i) {
    isLeading &= dims[i] == int64_t(i);
    isTrailing &= dims[i] == int64_t(numDims - numReduced + i);
  }
  if (isTrailing)
    return sumOfRows({kept, summed}, from.dtype, to.dtype);
  if (!isLeading)
    return nullptr;
  Rows rows{summed, kept};
  return [=, source = from.dtype, target = to.dtype](Threads &threads, const Buffers &buffers) {
    sumColumns(threads, rows, buffers.results[0], target,
               [&](int64_t row, int64_t first, int64_t count, float *totals) {
                 FloatsIn x(buffers.operands[0], source);
                 vectors().addScaled(x.at(row * rows.width + first, count), totals, count, 1);
               });
  };
}

} // namespace

NativeKernel makeNormalization(std::string_view op, const Attrs &attrs, const Types &operands,
                               const Types &results) {
  if (operands.empty() || !areNativeFloats(operands) || !areNativeFloats(results))
    return nullptr;
  if (op == "layer_norm")
    return layerNorm(attrs, operands, results);
  if (op == "layer_norm_grad")
    return layerNormGrad(operands, results);
  if (op == "norm_scale_grad")
    return normScaleGrad(operands, results);
  if (op == "reduce_sum")
    return reduceSum(attrs, operands[0], results[0]);
  return nullptr;
}

} // namespace tbc::cpu
